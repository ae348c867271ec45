#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <array>
#include <functional>
#include <future>

#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "measurements/measured_work.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

// One product, into existing memory.
struct Product {
  at::Tensor a, b, result;

  Product(Device device, std::int64_t n, std::uint64_t seed)
      : Product(noise({n, n}, at::dtype(at::kFloat).device(device), seed),
                noise({n, n}, at::dtype(at::kFloat).device(device), seed + 1)) {}
  Product(const at::Tensor& left, const at::Tensor& right)
      : a(left), b(right), result(at::empty_like(left)) {}

  Product on(Device device) const { return {copy_to(a, device), copy_to(b, device)}; }
  void run() { at::mm_out(result, a, b); }
};

using Pair = std::array<Product, 2>;

// On the CPU, a single-threaded worker runs it: LibTorch keeps a number of threads per calling thread. On a
// GPU, it is queued and waited for.
std::future<void> start(Device place, const std::function<void()>& work) {
  return std::async(place.is_cpu() ? std::launch::async : std::launch::deferred, [work] {
    at::set_num_threads(1);
    work();
  });
}

void require_equal_results(const Pair& in_sequence, const Pair& at_once) {
  for (std::size_t i = 0; i < 2; ++i) {
    const at::Tensor a = in_sequence[i].result.cpu(), b = at_once[i].result.cpu();
    // Two GPUs of one kind run the same kernels; different kinds sum in different orders.
    if (a.allclose(b, 1e-4, 1e-3)) continue;
    throw Error({.place = "bench pair",
                 .found = "product " + std::to_string(i + 1) + " differs between the two ways",
                 .wanted = "the same numbers in both"});
  }
}

// The times in sequence and at once.
std::array<Timing, 2> time_pair(const std::vector<Device>& places, std::int64_t n,
                                const TimingOptions& timing) {
  const OperatorThreads one(1);
  Pair in_sequence{Product(places[0], n, 1), Product(places[0], n, 3)};
  Pair at_once{in_sequence[0].on(places[0]), in_sequence[1].on(places[1])};
  const auto run_in_sequence = [&] {
    start(places[0], [&] {
      for (Product& product : in_sequence) product.run();
    }).get();
  };
  const auto run_at_once = [&] {
    auto first = start(places[0], [&] { at_once[0].run(); });
    auto second = start(places[1], [&] { at_once[1].run(); });
    first.get();
    second.get();
  };
  const std::array<Timing, 2> times{time_calls(places, run_in_sequence, timing),
                                    time_calls(places, run_at_once, timing)};
  require_equal_results(in_sequence, at_once);
  return times;
}

}  // namespace

BenchReport measure_pair(const std::vector<Device>& cards, std::int64_t n, const TimingOptions& timing) {
  const bool on_cards = cards.size() >= 2;
  const std::vector<Device> places = on_cards ? std::vector{cards[0], cards[1]} : std::vector{cpu(), cpu()};
  if (n == 0) n = on_cards ? 8192 : 1024;
  const auto [in_sequence, at_once] = time_pair(places, n, timing);
  const double speed_up = in_sequence.median_s / at_once.median_s;  // 2 is all one can hope for
  const std::string size = std::to_string(n);
  BenchReport report{.title = "two products of " + size + " x " + size,
                     .chart = {.title = "Two products", .xlabel = "places", .ylabel = "products per second"},
                     .notes = {"speed-up " + rounded_text(speed_up) + " of 2"},
                     .summary = {{"speed_up", speed_up}}};
  const auto add = [&](const char* how, const std::string& where, const Timing& time, double x) {
    report.add(joined({fields_of(places[0]),
                       {{"how", how, "how"}, {"where", where, "where"}, {"n", n}},
                       fields_of(time)}),
               "measured", x, 2 / time.median_s);
  };
  add("in sequence", on_cards ? cards[0].str() : "one worker of one thread on the cpu", in_sequence, 1);
  add("at once",
      on_cards ? cards[0].str() + " and " + cards[1].str() : "two workers of one thread each on the cpu",
      at_once, 2);
  const double one = 2 / in_sequence.median_s;
  report.chart.curves.push_back({"linear", {1, 2}, {one, 2 * one}});
  if (!on_cards)
    report.notes.push_back("fewer than two GPUs: " + gpu_unavailable_reason() +
                           "; measured on the CPU instead");
  return report;
}

}  // namespace kindling
