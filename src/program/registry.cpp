#include "kindling/program/registry.h"

#include "kindling/data/digits.h"
#include "kindling/data/idx_data.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/metrics/accuracy.h"
#include "kindling/nn/lenet.h"
#include "kindling/nn/linear_regression.h"
#include "kindling/nn/mlp.h"
#include "kindling/nn/small_cnn.h"
#include "kindling/nn/softmax_regression.h"
#include "kindling/optim/adadelta.h"
#include "kindling/optim/adagrad.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/adamax.h"
#include "kindling/optim/lamb.h"
#include "kindling/optim/lion.h"
#include "kindling/optim/muon.h"
#include "kindling/optim/nadam.h"
#include "kindling/optim/radam.h"
#include "kindling/optim/rmsprop.h"
#include "kindling/optim/sgd.h"

namespace kindling {

void register_builtin(Registry& registry) {
  registry.model<LinearRegression, LinearRegressionOptions>("linear_regression",
                                                            "one linear layer, squared loss");
  registry.model<SoftmaxRegression, SoftmaxRegressionOptions>("softmax_regression",
                                                              "one linear layer, cross-entropy");
  registry.model<Mlp, MlpOptions>("mlp", "linear layers with ReLU between them");
  registry.model<Lenet, LenetOptions>("lenet", "the textbook's LeNet-5");
  registry.model<SmallCnn, SmallCnnOptions>("small_cnn",
                                            "convolutions with batch normalization, for small images");

  registry.metric<Accuracy>("accuracy", "share of samples whose largest output stands at their label");

  registry.data<Digits>("digits", "1,797 handwritten digits of 8 x 8 pixels, part of the program");
  registry.data<SyntheticRegression, SyntheticRegressionOptions>("synthetic_regression",
                                                                 "y = Xw + b + noise");
  registry.data<IdxData, IdxOptions>("idx", "any pair of IDX files");
  registry.data<Mnist, MnistOptions>("mnist", "handwritten digits of 28 x 28 pixels, from four IDX files");
  registry.data<FashionMnist, MnistOptions>("fashion_mnist",
                                            "clothes of 28 x 28 pixels, from four IDX files");

  registry.optimizer<Sgd, SgdOptions>("sgd", "stochastic gradient descent, with momentum if wanted");
  registry.optimizer<Adam, AdamOptions>("adam", "Adam");
  registry.optimizer<AdamW, AdamWOptions>("adamw", "Adam with decoupled weight decay");
  registry.optimizer<RmsProp, RmsPropOptions>("rmsprop", "gradients over their running size");
  registry.optimizer<Adagrad, AdagradOptions>("adagrad", "gradients over the root of all their squares");
  registry.optimizer<Adadelta, AdadeltaOptions>("adadelta", "steps of the size of the last ones");
  registry.optimizer<Adamax, AdamaxOptions>("adamax", "Adam with the largest instead of the mean square");
  registry.optimizer<NAdam, NAdamOptions>("nadam", "Adam with Nesterov's momentum");
  registry.optimizer<RAdam, RAdamOptions>("radam", "Adam that rectifies its first steps");
  registry.optimizer<Lion, LionOptions>("lion", "the sign of a running mean");
  registry.optimizer<Lamb, LambOptions>("lamb", "Adam in steps of the weights' length, for large batches");
  registry.optimizer<Muon, MuonOptions>("muon", "orthogonalized momentum, for matrices");

  registry.schedule<ConstantScheduleOptions>("constant", "the learning rate, times a factor at first",
                                             &constant_schedule);
  registry.schedule<StepScheduleOptions>("step", "times gamma every step_size steps", &step_schedule);
  registry.schedule<LinearScheduleOptions>("linear", "from one factor to another", &linear_schedule);
  registry.schedule<CosineScheduleOptions>("cosine", "half a cosine down to eta_min", &cosine_schedule);
}

}  // namespace kindling
