"""Playback: a simulated run as a list of frames, to be shown one after the other.

    playback = play(job, inputs, seed=7)
    for frame in playback.frames:
        print(frame.caption, frame.why)

`recorder` watches the run, `captions` says in one sentence what happened and why, `demonstration` has a small job in which the
alignment of inputs is seen.
"""

from streamwork.testing.playback.demonstration import demonstrate
from streamwork.testing.playback.frames import Frame, Kind, Playback
from streamwork.testing.playback.recorder import play

__all__ = ["Frame", "Kind", "Playback", "demonstrate", "play"]
