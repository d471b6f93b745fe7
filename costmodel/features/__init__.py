"""The feature table: `table` joins the columns of TVM (`reference`), of a CPU and of a GPU."""
