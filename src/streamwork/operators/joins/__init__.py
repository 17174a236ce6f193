"""Joins: a stream with tables, with a stream within a bound of time, with a static table, with a database. All on whole
columns.
"""
