#include "checkpoints.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <kindling/base/error.h>
#include <kindling/formats/safetensors.h>
#include <kindling/tensors/checkpoint_file.h>
#include <kindling/training/model_checkpoint.h>
#include <kindling/training/trainer.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "clock.h"
#include "epoch_clock.h"
#include "peak_memory.h"
#include "plain_file.h"
#include "report.h"
#include "workloads.h"

namespace kindling_bench {
namespace {

using kindling::StateDict;

// 24 layers with their Adam state.
StateDict large_state() {
  constexpr std::int64_t kWidth = 1180;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  StateDict state;
  for (int layer = 0; layer < 24; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".weight";
    for (const std::string prefix : {"model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."})
      state.tensors.emplace_back(prefix + name, at::randn({kWidth, kWidth}, generator));
    state.tensors.emplace_back("optimizer.step." + name, at::full({}, 1000.0F));
  }
  return state;
}

double bytes_of(const StateDict& state) {
  double bytes = 0;
  for (const auto& [name, tensor] : state.tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

// Checks that the loaded state equals the saved one: the sum of all words, each multiplied by the number of
// its tensor in the order of names, modulo 2^32.
double checksum(StateDict state) {
  std::ranges::sort(state.tensors, {}, [](const auto& tensor) { return tensor.first; });
  std::uint32_t sum = 0, number = 0;
  for (const auto& [name, tensor] : state.tensors)
    sum += ++number * static_cast<std::uint32_t>(
                          tensor.reshape({-1}).view(at::kInt).sum(at::kLong).item<std::int64_t>());
  return sum;
}

double checksum(const PlainBytes& file) {
  StateDict state;
  for (const auto& entry : kindling::parse_safetensors({file.bytes.get(), file.size}, "plain").tensors)
    state.tensors.emplace_back(entry.name, at::from_blob(file.bytes.get() + entry.begin, entry.shape));
  return checksum(std::move(state));
}

// Each call of `work` is one repeat, with fresh memory from the system. Then computes the checksum of the
// state that `read_back` returns.
template <class Work, class ReadBack>
void measure(const Options& options, double state_bytes, const Work& work, const ReadBack& read_back) {
  Clock clock(options);
  std::vector<double> copies;
  for (int round = 0; round < clock.rounds(); ++round) {
    malloc_trim(0);
    clock.tick();
    const PeakMemory peak;
    const auto done = work();
    clock.stop();
    copies.push_back(peak.bytes() / state_bytes);
  }
  report_times(options, clock, "s", 1, {});
  report(options, {.metric = "peak_memory", .unit = "copies", .values = copies});
  report(options, {.metric = "checksum", .unit = "", .values = {checksum(read_back())}});
}

bool is_plain(const Options& options) {
  if (options.peer == "plain") return true;
  if (options.peer == "kindling") return false;
  throw kindling::ConfigError(
      {.place = "--peer", .found = "'" + options.peer + "'", .wanted = "kindling or plain"});
}

std::filesystem::path file_of(const Options& options) {
  return std::filesystem::path(options.folder) / (options.peer + ".safetensors");
}

// The cost of a save on the training thread alone: waits as long as a disk may need for the previous save,
// and takes a snapshot.
class Snapshots : public kindling::Callback {
 public:
  Snapshots(bool waits, bool copies) : waits_(waits), copies_(copies) {}
  void on_train_batch_end(kindling::Trainer& trainer, kindling::Module&) override {
    if (waits_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (copies_) copy_to(trainer.state_dict(), kindling::cpu());
  }

 private:
  bool waits_, copies_;
};

std::shared_ptr<kindling::Callback> saver(const Options& options) {
  const std::map<std::string, std::pair<bool, bool>> snapshots{{"without", {false, false}},
                                                               {"snapshot", {false, true}},
                                                               {"wait", {true, false}},
                                                               {"wait_snapshot", {true, true}}};
  if (const auto found = snapshots.find(options.variant); found != snapshots.end())
    return std::make_shared<Snapshots>(found->second.first, found->second.second);
  if (options.variant == "asynchronous")
    return std::make_shared<kindling::ModelCheckpoint>(
        kindling::ModelCheckpointOptions{.dirpath = std::filesystem::path(options.folder) / "steps",
                                         .every_n_epochs = 0,
                                         .every_n_steps = 1,
                                         .asynchronous = true});
  throw kindling::ConfigError({.place = "--variant",
                               .found = "'" + options.variant + "'",
                               .wanted = "without, snapshot, wait, wait_snapshot or asynchronous"});
}

}  // namespace

void ckpt_save(const Options& options) {
  const auto path = file_of(options);
  StateDict state = large_state();
  const double bytes = bytes_of(state);
  save_checkpoint(state, path);
  if (is_plain(options)) {
    state = {};
    const PlainBytes file = read_plainly(path);
    const auto write = [&] { return write_plainly(path, {file.bytes.get(), file.size}), path; };
    measure(options, bytes, write, [&] { return read_plainly(path); });
  } else {
    const auto save = [&] { return save_checkpoint(state, path), path; };
    measure(options, bytes, save, [&] { return kindling::load_checkpoint(path); });
  }
}

void ckpt_load(const Options& options) {
  const auto path = file_of(options);
  StateDict state = large_state();
  const double bytes = bytes_of(state);
  save_checkpoint(std::exchange(state, {}), path);
  const auto read = [&] { return read_plainly(path); };
  const auto load = [&] { return kindling::load_checkpoint(path); };
  is_plain(options) ? measure(options, bytes, read, read) : measure(options, bytes, load, load);
}

void ckpt_step(const Options& options) {
  const Workload workload = step_deep();
  Clock clock(options);
  kindling::Trainer trainer({.max_epochs = clock.rounds(),
                             .gradient_clip_val = workload.gradient_clip_val,
                             .optimizer = workload.optimizer,
                             .callbacks = {std::make_shared<EpochClock>(clock), saver(options)}});
  const double loss = trainer.fit(workload.model, *workload.data).metrics.at("train_loss");
  const auto steps = static_cast<double>(workload.size);
  report_times(options, clock, workload.unit, steps, loss);
  std::vector<double> thread_cpu = clock.thread_cpu();
  for (double& seconds : thread_cpu) seconds *= 1e6 / steps;
  report(options, {.metric = "thread_cpu", .unit = workload.unit, .values = thread_cpu, .final_loss = loss});
}

}  // namespace kindling_bench
