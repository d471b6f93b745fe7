"""What `bench_gpu` is made of: `cases`, `peers`, `measure`, and what a search would measure first."""
