"""Many tasks at once: `task_scheduler`, its `setup`, and whose turn it is by the `gradient`."""
