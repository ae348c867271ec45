#include "measurements/transfer_measurement.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "kindling/base/error.h"

namespace kindling {
namespace {

at::Tensor bytes_on(Device device, const TransferRouteOptions& options) {
  return at::empty({options.total_bytes},
                   at::dtype(at::kByte).device(device).pinned_memory(options.pinned && device.is_cpu()));
}

TransferResult measure_route(const TransferRouteOptions& options, const TimingOptions& timing) {
  TransferRoute route(options);
  const TransferCounts before = transfer_counts();
  route.run();
  const TransferCounts counts = transfer_counts() - before;
  if (!route.has_arrived())
    throw Error({.place = "bench transfer from " + options.from.str() + " to " + options.to.str(),
                 .found = "other bytes arrived than were sent"});
  return {.route = options,
          .time = time_calls(
              {options.from, options.to}, [&] { route.run(); }, timing),
          .counts = counts};
}

}  // namespace

TransferRoute::TransferRoute(const TransferRouteOptions& options)
    : options_(options),
      source_(bytes_on(options.from, options)),
      target_(bytes_on(options.to, options)),
      source_pieces_(source_.split(options.total_bytes / options.num_copies)),
      target_pieces_(target_.split(options.total_bytes / options.num_copies)) {
  const at::Tensor numbers = at::arange(options.total_bytes / 8 + 1, at::kLong);  // no two pieces alike
  source_.copy_(numbers.view(at::kByte).narrow(0, 0, options.total_bytes));
  target_.zero_();
}

void TransferRoute::run() {
  for (std::size_t i = 0; i < source_pieces_.size(); ++i)
    target_pieces_[i].copy_(source_pieces_[i], /*non_blocking=*/options_.pinned);
  if (options_.from == options_.to) return;
  if (options_.pinned) wait_for({options_.from, options_.to});
  TransferCounts& counts = transfer_counts();
  const auto copies = static_cast<std::int64_t>(source_pieces_.size());
  const bool to_card = options_.from.is_cpu();
  (to_card ? counts.host_to_device_copies : counts.device_to_host_copies) += copies;
  (to_card ? counts.host_to_device_bytes : counts.device_to_host_bytes) += source_.numel();
  counts.host_waits += options_.pinned ? 1 : copies;
}

bool TransferRoute::has_arrived() const { return target_.cpu().equal(source_.cpu()); }

std::vector<TransferResult> measure_transfer(Device device, const TransferOptions& options,
                                             const TimingOptions& timing) {
  std::vector<TransferResult> measured;
  for (const bool to_host : {false, true})
    for (const bool pinned : {false, true})
      for (const std::int64_t copies : {std::int64_t{1}, options.num_pieces}) {
        if (device.is_cpu() && (to_host || pinned)) continue;
        measured.push_back(measure_route({.from = to_host ? device : cpu(),
                                          .to = to_host ? cpu() : device,
                                          .pinned = pinned,
                                          .total_bytes = options.total_bytes,
                                          .num_copies = copies},
                                         timing));
      }
  return measured;
}

}  // namespace kindling
