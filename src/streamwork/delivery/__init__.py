"""Events that fail: dead letters, the inbox through which they are replayed, and the acknowledger, which
says when an event that failed comes again and when it is given up.

Policies are pure; files are written through the disk that is passed in. Knows nothing of how epochs are computed.
"""

from streamwork.delivery.acknowledger import Ack, Acknowledger, Outcome, Trouble, Waiting
from streamwork.delivery.inbox import Inbox, Replay
from streamwork.delivery.letters import DeadLetters, Letter

__all__ = [
    "Ack",
    "Acknowledger",
    "DeadLetters",
    "Inbox",
    "Letter",
    "Outcome",
    "Replay",
    "Trouble",
    "Waiting",
]
