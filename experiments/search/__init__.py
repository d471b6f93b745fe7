"""What `bench_search` is made of: its questions, and the `cases`, `models` and `runs` that they share."""
