#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "kindling/data/crop_transforms.h"
#include "kindling/data/image_folder.h"
#include "kindling/data/transformed_data.h"
#include "kindling/formats/image.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
#include "support/image_files.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

std::int64_t resident_bytes() {
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

class MemoryAfterTheFirst : public Callback {
 public:
  explicit MemoryAfterTheFirst(std::int64_t num_epochs) : num_epochs_(num_epochs) {}
  void on_epoch_end(Trainer&, Module&, const Record& record) override {
    if (record.epoch == num_epochs_) bytes = resident_bytes();
  }
  std::int64_t bytes = 0;

 private:
  std::int64_t num_epochs_;
};

// 2 MB in 200,000 epochs, ten bytes each, is less than one point of a curve. Fewer epochs suffice to see
// that; KINDLING_LONG_FIT_EPOCHS=200000 runs them all.
TEST(LongFit, MemoryStaysFlat) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps what has been freed";
#endif
  const char* wanted = std::getenv("KINDLING_LONG_FIT_EPOCHS");
  const std::int64_t num_epochs = wanted == nullptr ? 40'000 : std::atoll(wanted);
  const Scratch scratch;
  const at::Tensor x = at::arange(4, at::kFloat).unsqueeze(1);
  TensorData data({x, 2 * x}, {}, {.batch_size = 4});
  const auto memory = std::make_shared<MemoryAfterTheFirst>(1000);
  const auto model = std::make_shared<LinearRegression>();
  Trainer trainer({.max_epochs = num_epochs,
                   .optimizer = sgd(0.01),
                   .callbacks = {memory},
                   .loggers = {std::make_shared<CsvLogger>(scratch / "metrics.csv"),
                               std::make_shared<JsonlLogger>(scratch / "metrics.jsonl")}});
  trainer.fit(model, data);
  EXPECT_LT(resident_bytes() - memory->bytes, 10 * num_epochs);
  EXPECT_FALSE(model->board().chart().curves.empty());  // it has been drawn on all the time
}

// Files decoded by workers, transforms and validations for 200 epochs: less than 2 KB per epoch, an eighth of
// a batch. KINDLING_SOAK_FILES=2000 takes more than the 64 files of 16 x 16 pixels.
TEST(LongFit, MemoryStaysFlatWithWorkersAndTransforms) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps what has been freed";
#endif
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const char* wanted = std::getenv("KINDLING_SOAK_FILES");
  const std::int64_t num_files = wanted == nullptr ? 64 : std::atoll(wanted);
  constexpr std::int64_t kEpochs = 200, kWarmUp = 20;
  const Scratch scratch;
  for (std::int64_t i = 0; i < num_files; ++i)
    write_png(scratch / "images" / (i % 2 == 0 ? "a" : "b") / (std::to_string(i) + ".png"), 16, 16, 1, i);
  const DataOptions shared{.batch_size = 16, .num_workers = 2};
  TransformedData data(
      std::make_shared<ImageFolder>(
          ImageFolderOptions{.root = scratch / "images", .val_fraction = 0.25, .stratify = true}, shared),
      {.train = std::make_shared<RandomCrop>(RandomCropOptions{.size = {{16, 16}}, .padding = 2})});
  const auto memory = std::make_shared<MemoryAfterTheFirst>(kWarmUp);
  Trainer trainer({.max_epochs = kEpochs,
                   .optimizer = sgd(0.01),
                   .callbacks = {memory},
                   .loggers = {std::make_shared<JsonlLogger>(scratch / "metrics.jsonl")}});
  trainer.fit(std::make_shared<Mlp>(MlpOptions{.hidden = {8}, .num_classes = 2}), data);
  const std::int64_t growth = resident_bytes() - memory->bytes;
  std::cout << "[          ] " << memory->bytes << " bytes after " << kWarmUp << " epochs, " << growth
            << " more after " << kEpochs << "\n";
  EXPECT_LT(growth, 2000 * kEpochs);
}

}  // namespace
}  // namespace kindling
