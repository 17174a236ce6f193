"""Hosts compute epochs (`epoch.host`): `local` in this process, `spark_epochs` as one Spark job per epoch.

A host only feeds the engine's `Worker`; operators are executed in one place, by `engine.chain`.
"""
