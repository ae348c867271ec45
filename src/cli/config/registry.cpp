#include "kindling/cli/registry.h"

#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/data/cifar_data.h"
#include "kindling/data/color_jitter.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/digits.h"
#include "kindling/data/idx_data.h"
#include "kindling/data/image_folder.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/mix_transforms.h"
#include "kindling/data/segmentation_folder.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/data/table_data.h"
#include "kindling/interop/exported_backbone.h"
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
#include "kindling/models/mlp_regressor.h"
#include "kindling/models/resnet18.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/models/unet.h"
#include "kindling/models/unet_regressor.h"
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
  registry.schedule("constant", "the learning rate, multiplied by a factor in the first steps",
                    &constant_schedule);
  registry.schedule("step", "multiplied by gamma every step_size steps", &step_schedule);
  registry.schedule("multistep", "multiplied by gamma at each milestone", &multistep_schedule);
  registry.schedule("exponential", "multiplied by gamma in every step", &exponential_schedule);
  registry.schedule("linear", "linear from one factor of the learning rate to another", &linear_schedule);
  registry.schedule("polynomial", "polynomial decay to 0", &polynomial_schedule);
  registry.schedule("inverse_sqrt", "inverse square root of the step, after a warm-up",
                    &inverse_sqrt_schedule);
  registry.schedule("cosine", "half a cosine down to eta_min", &cosine_schedule);
  registry.schedule("cosine_restarts", "half a cosine down to eta_min, repeated (warm restarts)",
                    &cosine_restarts_schedule);
  registry.schedule("one_cycle",
                    "up, then down to far below the start, with the momentum in the opposite direction",
                    &one_cycle_schedule);
  registry.schedule("plateau", "multiplied by factor when a value stops improving", &plateau_schedule);
  registry.schedule("sequence", "several schedules in turn, from [[schedule.parts]]", &sequence_schedule);
}

void register_transforms(Registry& registry) {
  registry.transform<Normalize, NormalizeOptions>("normalize", "(image - mean) / std");
  registry.transform<Resize, ResizeOptions>("resize", "bilinear resizing");
  registry.transform<RandomCrop, RandomCropOptions>("random_crop", "a random part of the padded image");
  registry.transform<RandomResizedCrop, RandomResizedCropOptions>("random_resized_crop",
                                                                  "a random part of the image, resized");
  registry.transform<RandomHorizontalFlip, RandomHorizontalFlipOptions>("random_horizontal_flip",
                                                                        "left and right exchanged");
  registry.transform<RandomAffine, RandomAffineOptions>("random_affine", "rotation, shift and scaling");
  registry.transform<RandomErasing, RandomErasingOptions>("random_erasing",
                                                          "a random rectangle overwritten (cutout)");
  registry.transform<ColorJitter, ColorJitterOptions>("color_jitter",
                                                      "brightness, contrast, saturation and hue changed");
  registry.transform<MixUp, MixOptions>("mix_up", "images and labels mixed in pairs");
  registry.transform<CutMix, MixOptions>("cut_mix", "a rectangle of another image pasted, labels mixed");
  registry.transform<OneHot, OneHotOptions>("one_hot", "class numbers as probabilities");
}

void register_metrics(Registry& registry) {
  registry.metric<Accuracy, AccuracyOptions>("accuracy", "fraction of correct top-1 predictions");
  registry.metric<TopK, TopKOptions>("topk", "fraction of labels among the k largest outputs");
  registry.metric<TopK, TopKOptions>("top5", "fraction of labels among the five largest outputs", {.k = 5});
  for (const std::string score : {"precision", "recall", "f1", "iou", "dice"}) {
    const auto add = [&](const std::string& ending, const char* average, const std::string& doc) {
      const std::string name = score == "iou"    ? "intersection over union"
                               : score == "dice" ? "dice (f1)"
                                                 : score;
      registry.metric<ClassScore, ClassScoreOptions>(score + ending, name + doc,
                                                     {.score = score, .average = average});
    };
    add("", "binary", " of class 1 of two classes");
    add("_macro", "macro", ", mean over the classes");
    add("_micro", "micro", " of all predictions together");
    add("_weighted", "weighted", ", mean over the classes, weighted by their labels");
    add("_per_class", "per_class", " of each class");
  }
  registry.metric<ConfusionMatrix, ConfusionMatrixOptions>("confusion_matrix",
                                                           "counts of predictions for each label");
  registry.metric<Auroc, AurocOptions>("auroc", "area under the ROC curve, mean over the classes");
  registry.metric<Auroc, AurocOptions>(
      "auroc_weighted", "area under the ROC curve, mean over the classes, weighted by their labels",
      {.average = "weighted"});
  registry.metric<Auroc, AurocOptions>("auroc_per_class", "area under the ROC curve of each class",
                                       {.average = "per_class"});
  registry.metric<Perplexity, PerplexityOptions>("perplexity", "exponential of the mean cross-entropy");
  registry.metric<MeanError, MeanErrorOptions>("mae", "mean absolute error", {.error = "mae"});
  registry.metric<MeanError, MeanErrorOptions>("mse", "mean squared error", {.error = "mse"});
  registry.metric<MeanError, MeanErrorOptions>("rmse", "root of the mean squared error", {.error = "rmse"});
  registry.metric<R2, R2Options>("r2", "coefficient of determination, mean over the outputs");
  registry.metric<R2, R2Options>("r2_per_output", "coefficient of determination of each output",
                                 {.average = "per_output"});
}

}  // namespace

Schedule Registry::refuse_parts(const std::string& schedule) {
  throw ConfigError({.place = schedule + " schedule",
                     .found = "it has parts",
                     .wanted = "no parts",
                     .remedy = "[[schedule.parts]] requires name = \"sequence\""});
}

void register_builtin(Registry& registry) {
  registry.model<LinearRegression, LinearRegressionOptions>("linear_regression",
                                                            "one linear layer with squared loss");
  registry.model<SoftmaxRegression, SoftmaxRegressionOptions>("softmax_regression",
                                                              "one linear layer with cross-entropy loss");
  registry.model<Mlp, MlpOptions>("mlp", "multilayer perceptron with ReLU");
  registry.model<MlpRegressor, MlpRegressorOptions>("mlp_regressor",
                                                    "multilayer perceptron that predicts numbers");
  registry.model<Lenet, LenetOptions>("lenet", "LeNet-5 as in Dive into Deep Learning");
  registry.model<SmallCnn, SmallCnnOptions>("small_cnn", "convolutions with batch norm, for small images");
  registry.model<Resnet18, Resnet18Options>("resnet18", "ResNet-18 with torchvision's parameter names");
  registry.model<Unet, UnetOptions>("unet", "U-Net for a class per pixel (segmentation)");
  registry.model<UnetRegressor, UnetRegressorOptions>(
      "unet_regressor", "U-Net that predicts fields of numbers, in 1, 2 or 3 dimensions");
  registry.model<ExportedModule, ExportedModuleOptions>("exported",
                                                        "a model exported from Python, a .pt2 file");
  registry.model<ExportedBackbone, ExportedBackboneOptions>(
      "backbone", "a model exported from Python, followed by a new linear layer");

  register_metrics(registry);
  register_transforms(registry);

  registry.data<Digits>("digits", "1,797 handwritten digits of 8 x 8 pixels, built in");
  registry.data<SyntheticRegression, SyntheticRegressionOptions>("synthetic_regression",
                                                                 "samples of y = Xw + b + noise");
  registry.data<IdxData, IdxOptions>("idx", "images and labels from a pair of IDX files");
  registry.data<Mnist, MnistOptions>("mnist", "handwritten digits of 28 x 28 pixels, from four IDX files");
  registry.data<FashionMnist, MnistOptions>("fashion_mnist",
                                            "images of clothing of 28 x 28 pixels, from four IDX files");
  registry.data<Cifar10, Cifar10Options>("cifar10",
                                         "color images of 32 x 32 pixels, of 10 classes, binary version");
  registry.data<Cifar100, Cifar100Options>("cifar100",
                                           "color images of 32 x 32 pixels, of 100 classes, binary version");
  registry.data<ImageFolder, ImageFolderOptions>("image_folder",
                                                 "image files in class directories or in a list");
  registry.data<SegmentationFolder, SegmentationFolderOptions>(
      "segmentation_folder", "images and masks of their pixels' classes, as files");
  registry.data<ArrayData, ArrayDataOptions>(
      "arrays", "inputs and labels from .npz, .npy, .safetensors, .pt, HDF5, NetCDF or raw files");
  registry.data<TableData, TableDataOptions>("csv", "numbers and categories from a table: CSV or JSON lines");

  registry.optimizer<Sgd, SgdOptions>("sgd", "stochastic gradient descent, optionally with momentum");
  registry.optimizer<Adam, AdamOptions>("adam", "Adam");
  registry.optimizer<AdamW, AdamWOptions>("adamw", "Adam with decoupled weight decay");
  registry.optimizer<RmsProp, RmsPropOptions>("rmsprop",
                                              "gradients divided by their running root mean square");
  registry.optimizer<Adagrad, AdagradOptions>(
      "adagrad", "gradients divided by the root of the sum of all squared gradients");
  registry.optimizer<Adadelta, AdadeltaOptions>("adadelta", "gradients scaled by the size of recent updates");
  registry.optimizer<Adamax, AdamaxOptions>(
      "adamax", "Adam with the largest recent gradient instead of the mean square");
  registry.optimizer<NAdam, NAdamOptions>("nadam", "Adam with Nesterov momentum");
  registry.optimizer<RAdam, RAdamOptions>("radam", "Adam with rectified first steps");
  registry.optimizer<Lion, LionOptions>("lion", "sign of a running mean of the gradient");
  registry.optimizer<Lamb, LambOptions>(
      "lamb", "Adam's direction scaled to the norm of the weights, for large batches");
  registry.optimizer<Lbfgs, LbfgsOptions>("lbfgs",
                                          "limited-memory BFGS, for whole data sets or large batches");
  registry.optimizer<Muon, MuonOptions>("muon", "orthogonalized momentum, for matrices");

  register_schedules(registry);
}

}  // namespace kindling
