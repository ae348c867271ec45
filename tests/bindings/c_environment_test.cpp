#include <dlfcn.h>

#include <atomic>
#include <cfenv>
#include <thread>

#include "bindings/c_calls.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kindling::test {
namespace {

constexpr int kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;

// A program built with -ffpe-trap=invalid,zero,overflow that rounds upwards.
class TrappingProgram {
 public:
  TrappingProgram() {
    std::fegetenv(&before_);
    std::feclearexcept(FE_ALL_EXCEPT);
    ::feenableexcept(kTraps);
    std::fesetround(FE_UPWARD);
  }
  ~TrappingProgram() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

int32_t remember_environment(kindling_trainer, int32_t, void* user_data) {
  *static_cast<bool*>(user_data) = ::fegetexcept() == kTraps && std::fegetround() == FE_UPWARD;
  return 0;
}

// Masks, logarithms and overflows: what a classifier with padded labels and a loss that is not finite
// computes.
void train(std::vector<std::string> settings) {
  settings.emplace_back("trainer.on_nonfinite=\"skip\"");
  const kindling_trainer trainer = make_trainer(std::move(settings));
  OwnArray<float> x(KINDLING_FLOAT32, {4, 3});
  OwnArray<std::int64_t> y(KINDLING_INT64, {4});
  x.numbers[0] = 1e30F;
  x.numbers[1] = -1e30F;
  const kindling_array inputs = x.view(), targets = y.view();
  for (int step = 0; step < 20; ++step) {
    if (step == 10) x.numbers[5] = INFINITY;
    expect_ok(kindling_train_step(trainer, &inputs, 1, &targets, 1));
  }
  loss_of(trainer);
  expect_ok(kindling_finish_epoch(trainer));
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CEnvironment, TrapsOfTheCallerStayHisAndMeetNoCall) {
  const TrappingProgram program;
  for (const char* threads : {"1", "2"})
    train({"model.name=\"mlp\"", "model.hidden=[64]", "model.num_classes=3",
           std::string("trainer.num_threads=") + threads});
  EXPECT_EQ(::fegetexcept(), kTraps);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(std::fetestexcept(kTraps), 0);
}

// Functions of the OpenMP that LibTorch uses; null if it is built without one.
template <class Function>
Function* openmp(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// A solver that has used its own OpenMP threads, which trap as it does.
TEST(CEnvironment, ThreadsOfTheSolverMayTrap) {
  auto* const parallel = openmp<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
  if (parallel == nullptr) GTEST_SKIP() << "LibTorch does not use OpenMP";
  const TrappingProgram program;
  parallel([](void*) { ::feenableexcept(kTraps); }, nullptr, 2, 0);
  auto settings = regressor_settings();
  settings[1] = "model.hidden=[512]";
  settings.back() = "trainer.num_threads=2";
  settings.emplace_back("trainer.on_nonfinite=\"skip\"");
  const kindling_trainer trainer = make_trainer(settings);
  OwnArray<float> x(KINDLING_FLOAT32, {4096, 3}), y(KINDLING_FLOAT32, {4096, 1});
  for (float& number : x.numbers) number = INFINITY;
  const kindling_array inputs = x.view(), targets = y.view();
  for (int step = 0; step < 3; ++step) expect_ok(kindling_train_step(trainer, &inputs, 1, &targets, 1));
  static std::atomic<int> traps;
  traps = 0;
  parallel([](void*) { traps |= ::fegetexcept(); }, nullptr, 2, 0);
  EXPECT_EQ(traps & kTraps, kTraps);
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CEnvironment, TheSolverKeepsItsNumberOfThreads) {
  auto* const max_threads = openmp<int()>("omp_get_max_threads");
  auto* const set_threads = openmp<void(int)>("omp_set_num_threads");
  if (max_threads == nullptr || set_threads == nullptr) GTEST_SKIP() << "LibTorch does not use OpenMP";
  const int before = max_threads();
  set_threads(3);
  const kindling_trainer trainer = make_trainer();  // with num_threads = 1
  Samples<float> samples(KINDLING_FLOAT32);
  for (int step = 0; step < 3; ++step) {
    expect_ok(samples.train(trainer));
    EXPECT_EQ(max_threads(), 3);
  }
  expect_ok(kindling_trainer_free(trainer));
  set_threads(before);
}

TEST(CEnvironment, CallbacksRunInThatOfTheCaller) {
  const TrappingProgram program;
  const kindling_trainer trainer = make_trainer();
  bool is_callers = false;
  expect_ok(kindling_set_callback(trainer, KINDLING_ON_EPOCH_END, remember_environment, &is_callers));
  Samples<float> samples(KINDLING_FLOAT32);
  expect_ok(samples.train(trainer));
  expect_ok(kindling_finish_epoch(trainer));
  EXPECT_TRUE(is_callers);
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CEnvironment, RoundingOfTheCallerDoesNotChangeLosses) {
  std::vector<double> losses;
  for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO}) {
    Samples<float> samples(KINDLING_FLOAT32);
    std::fesetround(rounding);
    const kindling_trainer trainer = make_trainer();
    for (int step = 0; step < 10; ++step) expect_ok(samples.train(trainer));
    losses.push_back(loss_of(trainer));
    expect_ok(kindling_trainer_free(trainer));
    std::fesetround(FE_TONEAREST);
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
}

#if defined(__x86_64__)
TEST(CEnvironment, FlushToZeroOfTheCallerStays) {
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
  const kindling_trainer trainer = make_trainer();
  OwnArray<float> x(KINDLING_FLOAT32, {1, 3});
  x.numbers[0] = 1e-39F;  // subnormal
  const kindling_array array = x.view();
  kindling_tensor copy = nullptr, output = nullptr;
  expect_ok(kindling_tensor_from_array(&array, &copy));
  expect_ok(kindling_infer_tensor(trainer, &array, 1, &output));
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040U);
  _mm_setcsr(_mm_getcsr() & ~0x8040U);
  expect_ok(kindling_tensor_free(copy));
  expect_ok(kindling_tensor_free(output));
  expect_ok(kindling_trainer_free(trainer));
}
#endif

TEST(CEnvironment, ATrainerBelongsToOneThreadAtATime) {
  const kindling_trainer trainer = make_trainer();
  Samples<float> samples(KINDLING_FLOAT32);
  struct Busy {
    kindling_status status = KINDLING_OK, stop = KINDLING_ERROR, error_here = KINDLING_OK;
  } busy;
  expect_ok(kindling_set_callback(
      trainer, KINDLING_ON_BATCH_END,
      [](kindling_trainer of, int32_t, void* user_data) {
        auto& result = *static_cast<Busy*>(user_data);
        std::thread([&] {
          double rate = 0;
          result.status = kindling_learning_rate(of, &rate);
          result.error_here = kindling_error()[0] == 0 ? KINDLING_OK : KINDLING_ERROR;
          result.stop = kindling_request_stop(of);
        }).join();
        return kindling_trainer_free(of) == KINDLING_BUSY ? 0 : 1;
      },
      &busy));
  expect_ok(samples.train(trainer));
  EXPECT_EQ(busy.status, KINDLING_BUSY);
  EXPECT_EQ(busy.error_here, KINDLING_ERROR);
  expect_ok(busy.stop);
  int32_t is_done = 0;
  expect_ok(kindling_is_done(trainer, &is_done));
  EXPECT_EQ(is_done, 1);
  expect_ok(kindling_trainer_free(trainer));
}

}  // namespace
}  // namespace kindling::test
