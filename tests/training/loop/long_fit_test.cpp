#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/models/linear_regression.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
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

}  // namespace
}  // namespace kindling
