#pragma once

// Everything a training program needs.

#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/data/digits.h"
#include "kindling/data/idx_data.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/device/device.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/metrics/accuracy.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/lenet.h"
#include "kindling/nn/linear_regression.h"
#include "kindling/nn/mlp.h"
#include "kindling/nn/module.h"
#include "kindling/nn/small_cnn.h"
#include "kindling/nn/softmax_regression.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/clip.h"
#include "kindling/optim/schedule.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/batch.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
