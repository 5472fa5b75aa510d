"""The autoscalers that a user would pick instead, as their sources have them in 2026; `catalogue` lists them."""
