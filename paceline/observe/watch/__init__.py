"""The live page: a run, going on or over, live or simulated, as seen from its trace alone.

bins     where time went, in bins that follow the run       holdup   who holds whom up, and what that costs
pace     one worker's latest steps                          box      the scheme's algorithm, with places to stand at
state    records in, what is known of the run out           view     that as JSON, as much as the page shows
follow   reads a trace while it grows                       app      the page over HTTP, for its owner only
"""
