"""What moves between instances: events and columns with their lineage, watermarks, checkpoint events.

Channels, the dispatcher that aligns them, parcels that cross processes, and the routing to instances.
"""
