#include "kindling/cli/registry.h"

#include "kindling/base/error.h"
#include "kindling/data/digits.h"
#include "kindling/data/idx_data.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/interop/exported_module.h"
#include "kindling/metrics/accuracy.h"
#include "kindling/metrics/auroc.h"
#include "kindling/metrics/class_score.h"
#include "kindling/metrics/confusion_matrix.h"
#include "kindling/metrics/mean_error.h"
#include "kindling/metrics/perplexity.h"
#include "kindling/metrics/r2.h"
#include "kindling/metrics/top_k.h"
#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/optim/adadelta.h"
#include "kindling/optim/adagrad.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/adamax.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/optim/lamb.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/optim/lion.h"
#include "kindling/optim/muon.h"
#include "kindling/optim/nadam.h"
#include "kindling/optim/radam.h"
#include "kindling/optim/rmsprop.h"
#include "kindling/optim/sgd.h"

namespace kindling {
namespace {

void register_schedules(Registry& registry) {
  registry.schedule("constant", "the learning rate, times a factor at first", &constant_schedule);
  registry.schedule("step", "times gamma every step_size steps", &step_schedule);
  registry.schedule("multistep", "times gamma at each milestone", &multistep_schedule);
  registry.schedule("exponential", "times gamma at every step", &exponential_schedule);
  registry.schedule("linear", "from one factor to another", &linear_schedule);
  registry.schedule("polynomial", "down to 0 by a power of what is left", &polynomial_schedule);
  registry.schedule("inverse_sqrt", "with the root of the steps, behind a warm-up", &inverse_sqrt_schedule);
  registry.schedule("cosine", "half a cosine down to eta_min", &cosine_schedule);
  registry.schedule("cosine_restarts", "half cosines, from the top again and again",
                    &cosine_restarts_schedule);
  registry.schedule("one_cycle", "up, then far down, the momentum the other way", &one_cycle_schedule);
  registry.schedule("plateau", "times factor when a value stops improving", &plateau_schedule);
  registry.schedule("sequence", "one after the other: [[schedule.parts]]", &sequence_schedule);
}

void register_metrics(Registry& registry) {
  registry.metric<Accuracy, AccuracyOptions>("accuracy",
                                             "share of samples whose largest output stands at their label");
  registry.metric<TopK, TopKOptions>("topk", "share of labels among the k largest outputs");
  registry.metric<TopK, TopKOptions>("top5", "share of labels among the five largest outputs", {.k = 5});
  for (const std::string score : {"precision", "recall", "f1"}) {
    const auto add = [&](const std::string& ending, const char* average, const std::string& doc) {
      registry.metric<ClassScore, ClassScoreOptions>(score + ending, score + doc,
                                                     {.score = score, .average = average});
    };
    add("", "binary", " of class 1, where there are two");
    add("_macro", "macro", ", mean over the classes");
    add("_micro", "micro", " of all answers together");
    add("_weighted", "weighted", ", mean over the classes by how often they are labels");
    add("_per_class", "per_class", " of each class");
  }
  registry.metric<ConfusionMatrix, ConfusionMatrixOptions>("confusion_matrix",
                                                           "how often each label got each answer");
  registry.metric<Auroc, AurocOptions>("auroc", "area under the ROC of each class, their mean");
  registry.metric<Auroc, AurocOptions>("auroc_weighted", "the mean by how often classes are labels",
                                       {.average = "weighted"});
  registry.metric<Auroc, AurocOptions>("auroc_per_class", "the area of each class", {.average = "per_class"});
  registry.metric<Perplexity, PerplexityOptions>("perplexity", "exp of the mean cross-entropy of the labels");
  registry.metric<MeanError, MeanErrorOptions>("mae", "mean absolute error", {.error = "mae"});
  registry.metric<MeanError, MeanErrorOptions>("mse", "mean squared error", {.error = "mse"});
  registry.metric<MeanError, MeanErrorOptions>("rmse", "root of the mean squared error", {.error = "rmse"});
  registry.metric<R2, R2Options>("r2", "coefficient of determination, mean over the outputs");
  registry.metric<R2, R2Options>("r2_per_output", "the same for each output", {.average = "per_output"});
}

}  // namespace

Schedule Registry::refuse_parts(const std::string& schedule) {
  throw ConfigError({.place = schedule + " schedule",
                     .found = "it is given parts",
                     .wanted = "none: it is not made of others",
                     .remedy = "[[schedule.parts]] go with name = \"sequence\""});
}

void register_builtin(Registry& registry) {
  registry.model<LinearRegression, LinearRegressionOptions>("linear_regression",
                                                            "one linear layer, squared loss");
  registry.model<SoftmaxRegression, SoftmaxRegressionOptions>("softmax_regression",
                                                              "one linear layer, cross-entropy");
  registry.model<Mlp, MlpOptions>("mlp", "linear layers with ReLU between them");
  registry.model<Lenet, LenetOptions>("lenet", "the textbook's LeNet-5");
  registry.model<SmallCnn, SmallCnnOptions>("small_cnn",
                                            "convolutions with batch normalization, for small images");
  registry.model<ExportedModule, ExportedModuleOptions>("exported",
                                                        "a model that Python has exported, a .pt2");

  register_metrics(registry);

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
  registry.optimizer<Lbfgs, LbfgsOptions>("lbfgs", "quasi-Newton steps, for whole data sets");
  registry.optimizer<Muon, MuonOptions>("muon", "orthogonalized momentum, for matrices");

  register_schedules(registry);
}

}  // namespace kindling
