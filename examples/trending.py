"""The most used hashtags of the last hour, every ten minutes.

At-most-once: after a crash some posts are not counted, and none is counted twice. Results do not wait for a commit: they are
written at once. For a list of trends this is enough, and it is the cheapest choice.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from streamwork import Event, Job, JsonLines, Sliding, SqliteSink, count


class Post(Event):
    id: str
    text: str
    at: datetime


class Use(Event):
    hashtag: str
    at: datetime


class Trend(Event):
    window_start: datetime
    window_end: datetime
    hashtag: str
    uses: int


def hashtags(post: Post) -> Iterator[Use]:
    for hashtag in set(re.findall(r"#\w+", post.text)):
        yield Use(hashtag, post.at)


job = Job("trending", semantics="at-most-once")
posts = job.source(JsonLines("posts.jsonl", Post), id="posts", time="at")
uses = posts.flat_map(hashtags, to=Use)
trends = uses.window(Sliding("1h", "10min"), key="hashtag", time="at", lateness="1min", id="uses").aggregate(
    Trend, uses=count()
)
top = trends.top(3, by="uses", id="trending")  # adds a field `rank`
top.sink(SqliteSink("trends.db", "trends", key=["window_end", "rank"]), id="trends")  # a correction replaces its row
