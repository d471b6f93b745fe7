"""Programs for GPUs: the devices they run on, and what is called, timed and saved.

Reading order: `door` (what a device is), `opencl` with `pocl`, `cuda` with `cuda_pycuda` and `cuda_bindings`
(how one is reached), `package` and `launches` (what a compiled program is), `program` (one that is loaded),
`arrays` with `dlpack` and `module` (what users hold), `resources` (what kernels take of a multiprocessor),
`hardware` and `build` (from a target and a loop nest to a module).
"""
