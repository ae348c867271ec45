#include "bindings/call.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "kindling/base/version.h"

namespace kindling::bindings {
namespace {

struct LatestError {
  std::string text{};
  std::array<std::string, 4> parts{};
};

LatestError& latest_error() {
  thread_local LatestError error;
  return error;
}

thread_local CallScope* innermost = nullptr;
thread_local int libtorch_threads = 0;  // of OpenMP in calls; 0: as outside
std::atomic<int> most_threads = 1;

// Functions of the OpenMP that LibTorch and the program share, if they do. Linking one could bring a second
// one.
struct OpenMp {
  int (*max_threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  int (*thread_number)() = nullptr;
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
};

template <class Function>
void find(const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

const OpenMp& openmp() {
  static const OpenMp found = [] {
    OpenMp functions;
    find("omp_get_max_threads", functions.max_threads);
    find("omp_set_num_threads", functions.set_threads);
    find("omp_get_thread_num", functions.thread_number);
    find("GOMP_parallel", functions.parallel);
    const bool are_all = functions.max_threads != nullptr && functions.set_threads != nullptr &&
                         functions.thread_number != nullptr && functions.parallel != nullptr;
    return are_all ? functions : OpenMp{};
  }();
  return found;
}

// Whether this thread traps, rounds or flushes in another way than LibTorch expects.
bool has_own_environment() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8040;
  if ((__builtin_ia32_stmxcsr() & kFlushToZero) != 0) return true;
#endif
  return ::fegetexcept() != 0 || std::fegetround() != FE_TONEAREST;
}

kindling_status status_of(const Error& error) {
  if (const auto* with_status = dynamic_cast<const StatusError*>(&error)) return with_status->status();
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return KINDLING_CONFIG_ERROR;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return KINDLING_DATA_ERROR;
  if (dynamic_cast<const CheckpointError*>(&error) != nullptr) return KINDLING_CHECKPOINT_ERROR;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return KINDLING_DEVICE_ERROR;
  if (dynamic_cast<const DistributedError*>(&error) != nullptr) return KINDLING_DISTRIBUTED_ERROR;
  return KINDLING_ERROR;
}

kindling_status keep(const Error& error) {
  const ErrorParts& parts = error.parts();
  latest_error() = {error.what(), {parts.place, parts.found, parts.wanted, parts.remedy}};
  return status_of(error);
}

}  // namespace

void refuse_use(const std::string& place, const std::string& found, const std::string& wanted,
                const std::string& remedy) {
  throw StatusError(KINDLING_USAGE_ERROR,
                    {.place = place, .found = found, .wanted = wanted, .remedy = remedy});
}

void require_pointer(const void* pointer, const char* place, const char* argument) {
  if (pointer == nullptr)
    refuse_use(place, std::string("'") + argument + "' is a null pointer", "the address of an object");
}

CallScope::CallScope() noexcept : outer_(std::exchange(innermost, this)) {
  if (outer_ == nullptr) enter_openmp();
  std::fegetenv(&callers_);
  std::fesetenv(FE_DFL_ENV);
}

CallScope::~CallScope() {
  innermost = outer_;
  if (outer_ == nullptr) leave_openmp();
  std::fesetenv(&callers_);
}

void CallScope::enter_openmp() noexcept {
  const OpenMp& omp = openmp();
  if (omp.parallel == nullptr) return;
  callers_threads_ = omp.max_threads();
  if (libtorch_threads != 0) omp.set_threads(libtorch_threads);
  if (!has_own_environment()) return;
  const int size = std::max(omp.max_threads(), most_threads.load(std::memory_order_relaxed));
  if (size < 2) return;
  pool_.reset(new (std::nothrow) std::fenv_t[static_cast<std::size_t>(size)]);
  if (pool_ == nullptr) return;
  pool_size_ = size;
  for (int i = 0; i < size; ++i) std::fegetenv(&pool_[static_cast<std::size_t>(i)]);
  omp.parallel(
      [](void* pool) {
        std::fegetenv(static_cast<std::fenv_t*>(pool) + openmp().thread_number());
        std::fesetenv(FE_DFL_ENV);
      },
      pool_.get(), static_cast<unsigned>(size), 0);
  std::fesetenv(&pool_[0]);  // this thread's, which is saved after this
}

void CallScope::leave_openmp() noexcept {
  const OpenMp& omp = openmp();
  if (omp.parallel == nullptr) return;
  const int now = omp.max_threads();
  if (pool_ != nullptr)
    omp.parallel(
        [](void* pool) { std::fesetenv(static_cast<std::fenv_t*>(pool) + openmp().thread_number()); },
        pool_.get(), static_cast<unsigned>(pool_size_), 0);
  if (callers_threads_ == 0) return;
  if (libtorch_threads != 0 || now != callers_threads_) libtorch_threads = now;
  if (now != callers_threads_) omp.set_threads(callers_threads_);
}

void use_threads(int number) noexcept {
  int known = most_threads.load(std::memory_order_relaxed);
  while (known < number && !most_threads.compare_exchange_weak(known, number, std::memory_order_relaxed)) {
  }
}

CallerScope::CallerScope() noexcept : scope_(innermost) {
  if (scope_ != nullptr) std::fesetenv(&scope_->callers_);
}

CallerScope::~CallerScope() {
  if (scope_ == nullptr) return;
  std::fegetenv(&scope_->callers_);
  std::fesetenv(FE_DFL_ENV);
}

kindling_status keep_error(const char* place) noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return keep(error);
    } catch (const c10::Error& error) {
      return keep(Error({.place = place, .found = error.what_without_backtrace()}));
    } catch (const std::bad_alloc&) {
      return keep(Error({.place = place,
                         .found = "the memory is used up",
                         .remedy = "use smaller batches, or a smaller model"}));
    } catch (const std::exception& error) {
      return keep(Error({.place = place, .found = error.what()}));
    } catch (...) {
      return keep(Error({.place = place, .found = "an unknown exception"}));
    }
  } catch (...) {  // no memory for the text
    return KINDLING_ERROR;
  }
}

}  // namespace kindling::bindings

using kindling::bindings::latest_error;

const char* kindling_error(void) { return latest_error().text.c_str(); }

const char* kindling_error_part(int32_t part) {
  const auto& parts = latest_error().parts;
  return part < 0 || static_cast<std::size_t>(part) >= parts.size()
             ? ""
             : parts[static_cast<std::size_t>(part)].c_str();
}

kindling_status kindling_set_error(kindling_status status, const char* location, const char* found,
                                   const char* expected, const char* hint) {
  const auto text = [](const char* part) { return part == nullptr ? "" : part; };
  const kindling_status kept = kindling::bindings::call(__func__, [&] {
    throw kindling::bindings::StatusError(
        status,
        {.place = text(location), .found = text(found), .wanted = text(expected), .remedy = text(hint)});
  });
  return kept == KINDLING_OK ? KINDLING_ERROR : kept;
}

const char* kindling_version(void) { return kindling::version(); }
