"""The catalogue: ready-made workloads, each with benchmark sizes, small sizes and a numpy reference.

They are the operators and subgraphs of the paper's evaluation and a few more. `ansor.workloads.matmul(64, 64,
64)` gives tensors, as any user's function does; `CATALOGUE` lists everything that tests and benchmarks need
to go through all of them. This package is the only place in ansor that knows an operator's name: rules,
lowering and search see expressions alone.

Images are channels-last and batches come first; every function takes plain numbers and strings, so its calls
are workload keys (`["ansor.matmul", 64, 64, 64]`). Common arguments: `dtype` is that of the inputs;
`out_dtype` that of the output, by default `dtype`, and int32 for narrow integers. Products are computed and
added up in the output's dtype, but in float32 for outputs of 16-bit floats, which are rounded once.

Source of the benchmark sizes: Zheng et al., OSDI 2020, section 7.1, as in the paper's published artifact.
"""

from ansor.workloads.alternatives import alternatives_of
from ansor.workloads.catalogue import CATALOGUE, Workload, get_workload
from ansor.workloads.convolution import (
    conv1d,
    conv2d,
    conv2d_bn_relu,
    conv3d,
    dilated_conv2d,
    group_conv2d,
)
from ansor.workloads.convolution_forms import (
    capsule_conv2d,
    conv2d_nchw,
    depthwise_conv2d,
    transposed_conv2d,
)
from ansor.workloads.image import rgb_to_yuv
from ansor.workloads.matrix import batch_matmul, dense, matmul, matmul_add
from ansor.workloads.pooling import avg_pool2d, max_pool2d
from ansor.workloads.rows import attention_scores, layer_norm, norm, softmax
from ansor.workloads.winograd import (
    conv2d_bn_relu_winograd,
    conv2d_bn_relu_winograd_prepared,
    conv2d_nchw_winograd,
    conv2d_nchw_winograd_prepared,
    conv2d_winograd,
    conv2d_winograd_prepared,
)

__all__ = [
    "CATALOGUE",
    "Workload",
    "alternatives_of",
    "attention_scores",
    "avg_pool2d",
    "batch_matmul",
    "capsule_conv2d",
    "conv1d",
    "conv2d",
    "conv2d_bn_relu",
    "conv2d_bn_relu_winograd",
    "conv2d_bn_relu_winograd_prepared",
    "conv2d_nchw",
    "conv2d_nchw_winograd",
    "conv2d_nchw_winograd_prepared",
    "conv2d_winograd",
    "conv2d_winograd_prepared",
    "conv3d",
    "dense",
    "depthwise_conv2d",
    "dilated_conv2d",
    "get_workload",
    "group_conv2d",
    "layer_norm",
    "matmul",
    "matmul_add",
    "max_pool2d",
    "norm",
    "rgb_to_yuv",
    "softmax",
    "transposed_conv2d",
]
