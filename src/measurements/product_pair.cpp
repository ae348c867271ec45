#include "measurements/product_pair.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <array>
#include <functional>
#include <future>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "measurements/noise.h"
#include "measurements/operator_threads.h"

namespace kindling {
namespace {

// One product, in memory that is there.
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

// LibTorch keeps a number of threads for each thread that calls it.
std::future<void> start_worker(const std::function<void()>& work) {
  return std::async(std::launch::async, [&work] {
    at::set_num_threads(1);
    work();
  });
}

void require_equal_results(const Pair& in_sequence, const Pair& at_once) {
  for (std::size_t i = 0; i < 2; ++i) {
    const at::Tensor a = in_sequence[i].result.cpu(), b = at_once[i].result.cpu();
    // Two cards of one kind run the same kernels; those of different kinds add in another order.
    if (a.allclose(b, 1e-4, 1e-3)) continue;
    throw Error({.place = "bench pair",
                 .found = "product " + std::to_string(i + 1) + " differs between the two ways",
                 .wanted = "the same numbers in both"});
  }
}

PairResult on_cards(const std::vector<Device>& places, std::int64_t n, const TimingOptions& timing) {
  Pair in_sequence{Product(places[0], n, 1), Product(places[0], n, 3)};
  Pair at_once{in_sequence[0].on(places[0]), in_sequence[1].on(places[1])};
  const auto run = [](Pair& pair) {
    for (Product& product : pair) product.run();  // queues it and returns
  };
  PairResult measured{.places = places, .n = n};
  measured.in_sequence = time_calls(
      places, [&] { run(in_sequence); }, timing);
  measured.at_once = time_calls(
      places, [&] { run(at_once); }, timing);
  require_equal_results(in_sequence, at_once);
  return measured;
}

PairResult on_workers(std::int64_t n, const TimingOptions& timing) {
  const OperatorThreads one(1);
  Pair in_sequence{Product(cpu(), n, 1), Product(cpu(), n, 3)};
  Pair at_once{in_sequence[0].on(cpu()), in_sequence[1].on(cpu())};
  const auto one_worker = [&] {
    const std::function<void()> both = [&] {
      for (Product& product : in_sequence) product.run();
    };
    start_worker(both).get();
  };
  const std::function<void()> first = [&] { at_once[0].run(); }, second = [&] { at_once[1].run(); };
  const auto two_workers = [&] {
    auto one = start_worker(first), other = start_worker(second);
    one.get();
    other.get();
  };
  PairResult measured{.places = {cpu()}, .n = n};
  measured.in_sequence = time_calls({}, one_worker, timing);
  measured.at_once = time_calls({}, two_workers, timing);
  require_equal_results(in_sequence, at_once);
  return measured;
}

}  // namespace

PairResult measure_pair(const std::vector<Device>& cards, std::int64_t n, const TimingOptions& timing) {
  return cards.size() < 2 ? on_workers(n, timing) : on_cards({cards[0], cards[1]}, n, timing);
}

}  // namespace kindling
