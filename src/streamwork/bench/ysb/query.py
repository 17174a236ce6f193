"""The query of the benchmark, for all of its jobs: views, with their campaigns."""

from __future__ import annotations

from typing import Any

from streamwork import StaticTable, field
from streamwork.bench.ysb.events import CampaignView, Stream
from streamwork.job.stream import Stream as Events

WINDOW = "10s"


def campaign_views(ads: Events[Any], stream: Stream) -> Events[CampaignView]:
    """The views among the events, joined with their campaigns by a static table."""
    views = ads.where(field("kind") == "view")
    return views.join(StaticTable(stream.campaigns_of_ads(), name="ads"), key="ad", id="campaigns", to=CampaignView)
