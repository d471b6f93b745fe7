"""What `bench_cpu` is made of: `cases` and their `goals`, peers, limits, and the table of results."""
