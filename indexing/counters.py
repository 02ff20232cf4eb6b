"""What this process counted and timed, for `/metrics`: all rooms write here, `assistant/metrics_page.py` reads.

Counts live in memory and begin at 0 with the process, as Prometheus expects. Labels are names from this code, never
names of repositories or people. What all processes share is not counted but asked of the database when it is read.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

# From a cached fragment to an answer of minutes.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

requests = Counter(
    "assistant_requests", "Requests by page or API operation, and how they ended", ["method", "route", "status"]
)
request_seconds = Histogram(
    "assistant_request_seconds", "Until the response begins; streams go on after that", ["route"], buckets=SECONDS
)
stage_seconds = Histogram("assistant_stage_seconds", "Stages of searches and answers", ["stage"], buckets=SECONDS)
answers = Counter("assistant_answers", "Answers written by this process, and how they ended", ["state"])
streams = Gauge("assistant_open_streams", "Readers that follow an answer at the moment")
index_cache = Counter("assistant_index_cache", "Opened indexes: found open, or opened from their files", ["outcome"])
segment_cache = Counter(
    "assistant_segment_cache", "Index files wanted on the local disk: found, copied, or failed to copy", ["outcome"]
)
llm_calls = Counter("assistant_llm_calls", "Calls of the language model by this process", ["purpose", "outcome"])
llm_tokens = Counter("assistant_llm_tokens", "Tokens of those calls", ["purpose", "kind"])
llm_cost = Counter("assistant_llm_cost_usd", "Price of those calls, where the model's price is known", ["purpose"])
llm_seconds = Histogram("assistant_llm_seconds", "Duration of those calls", ["purpose"], buckets=SECONDS)
