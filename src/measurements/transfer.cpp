#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "measurements/measured_work.h"

namespace kindling {
namespace {

at::Tensor bytes_on(Device device, const TransferRouteOptions& options) {
  return at::empty({options.total_bytes},
                   at::dtype(at::kByte).device(device).pinned_memory(options.pinned && device.is_cpu()));
}

std::string memory_name(const TransferRouteOptions& route) {
  if (route.from == route.to) return "within the host";
  return route.pinned ? "pinned" : "pageable";
}

// Times are for all its copies, counts for one run (nothing within the host).
void add_route(const TransferRouteOptions& options, const TimingOptions& timing, BenchReport& report) {
  TransferRoute route(options);
  const TransferCounts before = transfer_counts();
  route.run();
  const TransferCounts counts = transfer_counts() - before;
  const std::string from = options.from.str(), to = options.to.str(), memory = memory_name(options);
  if (!route.has_arrived())
    throw Error({.place = "bench transfer from " + from + " to " + to,
                 .found = "the copied bytes differ from the source"});
  const Timing time = time_calls(
      {options.from, options.to}, [&] { route.run(); }, timing);
  const auto bytes = static_cast<double>(options.total_bytes),
             copies = static_cast<double>(options.num_copies);
  const double gigabytes_per_s = bytes / time.median_s / 1e9, s_per_copy = time.median_s / copies;
  report.add(joined({fields_of(options.from.is_cpu() ? options.to : options.from),
                     {{"from", from, "from"},
                      {"to", to, "to"},
                      {"memory", memory, "memory"},
                      {"num_copies", options.num_copies, "copies"},
                      {"total_bytes", options.total_bytes}},
                     fields_of(time),
                     {{"gigabytes_per_s", gigabytes_per_s, "GB/s"},
                      {"us_per_copy", s_per_copy * 1e6, "per copy", time_text(s_per_copy)}},
                     fields_of(counts, {"host waits"})}),
             from + " → " + to + ", " + memory, bytes / copies, gigabytes_per_s);
}

}  // namespace

TransferRoute::TransferRoute(const TransferRouteOptions& options)
    : options_(options),
      source_(bytes_on(options.from, options)),
      target_(bytes_on(options.to, options)),
      source_pieces_(source_.split(options.total_bytes / options.num_copies)),
      target_pieces_(target_.split(options.total_bytes / options.num_copies)) {
  const at::Tensor numbers = at::arange(options.total_bytes / 8 + 1, at::kLong);  // no two pieces are equal
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

BenchReport measure_transfer(Device device, const TransferOptions& options, const TimingOptions& timing) {
  const std::int64_t total_bytes = options.mebibytes << 20;
  if (total_bytes % options.pieces != 0)
    throw ConfigError({.place = "--pieces " + std::to_string(options.pieces),
                       .found = std::to_string(total_bytes) + " bytes cannot be split into equal pieces",
                       .wanted = "a power of two"});
  BenchReport report{.title = std::to_string(options.mebibytes) + " MiB in one copy and in many",
                     .chart = {.title = "Copies of the same bytes",
                               .xlabel = "bytes per copy",
                               .ylabel = "GB/s",
                               .xscale = AxisScale::log,
                               .yscale = AxisScale::log}};
  for (const bool to_host : {false, true})
    for (const bool pinned : {false, true})
      for (const std::int64_t copies : {std::int64_t{1}, options.pieces}) {
        if (device.is_cpu() && (to_host || pinned)) continue;
        add_route({.from = to_host ? device : cpu(),
                   .to = to_host ? cpu() : device,
                   .pinned = pinned,
                   .total_bytes = total_bytes,
                   .num_copies = copies},
                  timing, report);
      }
  report.note_missing_card("; these are copies within host memory, not transfers");
  return report;
}

}  // namespace kindling
