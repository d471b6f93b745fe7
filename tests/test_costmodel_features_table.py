"""The feature table itself: TVM's names in its order, and what is said of each column."""

from __future__ import annotations

import numpy as np

from costmodel.features.table import FEATURES, SCALED, feature_names, scale, unscale

POSITIONS = (
    "kPosNone",
    "kPosInnerSpatial",
    "kPosMiddleSpatial",
    "kPosOuterSpatial",
    "kPosInnerReduce",
    "kPosMiddleReduce",
    "kPosOuterReduce",
    "kPosMixed",
)
BUFFER = (
    "acc_type.kRead",
    "acc_type.kWrite",
    "acc_type.kReadWrite",
    "bytes",
    "unique_bytes",
    "lines",
    "unique_lines",
    "reuse_type.kLoopMultipleRead",
    "reuse_type.kSerialMultipleReadWrite",
    "reuse_type.kNoReuse",
    "reuse_dis_iter",
    "reuse_dis_bytes",
    "reuse_ct",
    "bytes_d_reuse_ct",
    "unique_bytes_d_reuse_ct",
    "lines_d_reuse_ct",
    "unique_lines_d_reuse_ct",
    "stride",
)
REFERENCE = (
    *("float_mad", "float_addsub", "float_mul", "float_divmod", "float_cmp", "float_mathfunc"),
    "float_otherfunc",
    *("int_mad", "int_addsub", "int_mul", "int_divmod", "int_cmp", "int_mathfunc", "int_otherfunc"),
    *("bool_op", "select_op"),
    *("vec_num", "vec_prod", "vec_len", *(f"vec_type.{one}" for one in POSITIONS)),
    *("unroll_num", "unroll_prod", "unroll_len", *(f"unroll_type.{one}" for one in POSITIONS)),
    *("parallel_num", "parallel_prod", "parallel_len", *(f"parallel_type.{one}" for one in POSITIONS)),
    *("is_gpu", "blockIdx_x_len", "blockIdx_y_len", "blockIdx_z_len"),
    *("threadIdx_x_len", "threadIdx_y_len", "threadIdx_z_len", "vthread_len"),
    *(f"B{which}.{one}" for which in range(5) for one in BUFFER),
    *(f"arith_intensity_curve_{sample}" for sample in range(10)),
    *("alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod"),
    *("outer_prod", "num_loops", "auto_unroll_max_step"),
)
"""In the order of `feature.cc` of TVM 0.16."""


def test_the_first_columns_are_the_references_by_name_and_order() -> None:
    assert len(REFERENCE) == 57 + 18 * 5 + 10 + 4 + 3 == 164
    assert feature_names()[:164] == REFERENCE


def test_no_column_has_the_name_of_another() -> None:
    assert len(set(feature_names())) == len(FEATURES) > 164


def test_magnitudes_beyond_float32_are_finite_and_in_order() -> None:
    column = int(np.argmax(SCALED))
    raw = np.zeros((len(FEATURES), 6))
    raw[column] = [2.0**127, 2.0**128, -(2.0**130), 1e300, np.inf, 3.0]
    scaled = scale(raw)
    np.testing.assert_allclose(scaled[column], [127, 128, -130, 300 * np.log2(10), 1023, 2], rtol=1e-6)
    back = unscale(scaled.T, [FEATURES[column].name])[FEATURES[column].name]
    np.testing.assert_allclose(back[[0, 1, 2, 5]], raw[column, [0, 1, 2, 5]], rtol=1e-4)
