"""System usage: count the transactions of the card network, and those that were judged fraudulent, exactly once.

streamwork run examples/system_usage/job.py
USAGE_SINK=append streamwork run examples/system_usage/job.py --semantics at-least-once --mode local
"""

from usage import settings
from usage.build import build
from usage.writers import WRITERS

job = build(settings.LOG, settings.DECISIONS, WRITERS[settings.SINK](settings.DATABASE), settings.LOOK_UP)
