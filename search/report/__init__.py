"""A log as a web page: what it tells (`data`, `belief`), as `charts`, on a `page`."""
