#include "graph/replay/replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "graph/recording/digest.h"
#include "graph/replay/memory_plan.h"
#include "graph/replay/replay_builder.h"
#include "tensors/tensor_snapshot.h"

namespace kindling {
namespace {

// In bytes: for pieces of this size, an allocation costs little compared with writing to it.
constexpr std::size_t kLargePiece = std::size_t{1} << 16;
// Up to this size, glibc can use freed memory again.
constexpr std::size_t kMappedPiece = std::size_t{32} << 20;

// In bytes: for a block of this size, page faults cost little compared with a step.
constexpr std::size_t kLargeBlock = std::size_t{4} << 20;

// Returns memory that the process has freed and kept to the system.
void give_back_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Suppresses operator warnings during replay.
class SilentWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { has_any = true; }
  bool has_any = false;
};

// True if the node has written its results into the given tensors.
bool writes_in_place(ReplayNode& node, const std::vector<at::Tensor>& written) {
  struct Layout {
    const void* data;
    std::vector<std::int64_t> sizes, strides;
    bool operator==(const Layout&) const = default;
  };
  const auto layouts = [&] {
    std::vector<Layout> all;
    for (const at::Tensor& tensor : written)
      all.push_back({tensor.const_data_ptr(), tensor.sizes().vec(), tensor.strides().vec()});
    return all;
  };
  const auto before = layouts();
  SilentWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    node.run();
    if (layouts() == before && !warnings.has_any) return true;
  } catch (const c10::Error&) {
    // It tries to resize them temporarily, which their memory does not allow.
  }
  for (std::size_t i = 0; i < written.size(); ++i)
    written[i].unsafeGetTensorImpl()->set_sizes_and_strides(before[i].sizes, before[i].strides,
                                                            written[i].storage_offset());
  return false;
}

}  // namespace

Replay::Replay(const Recording& recording, std::span<const at::Tensor> inputs, NativeKernels kernels)
    : watched_(recording) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  {
    ReplayBuilder builder(recording, kernels);
    add_inputs(builder);
    set_inputs(inputs);
    add_outputs(builder);
    changed_ = builder.changed();
    const TensorSnapshot before(changed_);
    add_nodes(builder);
  }
  for (const at::Tensor& output : outputs_) own_uses_.push_back(num_uses(output));
}

void Replay::add_inputs(const ReplayBuilder& builder) {
  const auto& storages = builder.recording().storages;
  for (std::size_t i = 0; i < storages.size(); ++i)
    if (storages[i].input >= 0)
      inputs_.push_back({static_cast<std::size_t>(storages[i].input), builder.storage(i)});
}

void Replay::set_inputs(std::span<const at::Tensor> inputs) {
  for (const Input& input : inputs_) {
    if (input.number >= inputs.size()) continue;
    const at::Tensor& given = inputs[input.number];
    const auto before = static_cast<std::size_t>(given.storage_offset()) * given.element_size();
    c10::StorageImpl& memory = *input.storage.unsafeGetStorageImpl();
    memory.set_data_ptr_noswap(at::DataPtr(given.data_ptr(), at::kCPU));
    memory.set_nbytes(given.storage().nbytes() - before);  // operators that access a part of it check that
  }
}

void Replay::add_outputs(ReplayBuilder& builder) {
  const Recording& recording = builder.recording();
  for (const std::int64_t place : recording.outputs) {
    outputs_.push_back(builder.tensor(place));
    if (place < 0) continue;
    const std::size_t storage = recording.places[static_cast<std::size_t>(place)].storage;
    if (!recording.storages[storage].is_external) own_outputs_.push_back(outputs_.back().storage());
  }
  take_output_memory();
}

// Returns large outputs of the backward. Their memory is free between the steps, and while the forward keeps
// what the backward needs.
std::vector<ReplayBuilder::Result> Replay::add_late_outputs(const ReplayBuilder& builder) {
  std::vector<ReplayBuilder::Result> late = builder.outputs();
  std::erase_if(late, [&](const ReplayBuilder::Result& output) {
    return output.need.first < builder.recording().num_forward_calls || output.need.num_bytes < kLargePiece ||
           output.need.num_bytes >= kMappedPiece;
  });
  for (const auto& [storage, need] : late) {
    const c10::Storage& memory = builder.storage(storage);
    late_outputs_.push_back(memory);
    std::erase_if(own_outputs_, [&](const c10::Storage& own) { return own.is_alias_of(memory); });
  }
  return late;
}

void Replay::take_output_memory() {
  for (const c10::Storage& storage : own_outputs_)
    if (storage.data() == nullptr) take_memory(storage);
}

namespace {

// Runs a call for the first time and chooses its node; nullptr: nothing to run.
std::unique_ptr<ReplayNode> chosen(const ReplayBuilder& builder, ReplayBuilder::Nodes& nodes, bool& adopts) {
  adopts = false;
  if (nodes.writing || !nodes.making)
    for (const std::size_t storage : nodes.made)
      if (builder.storage(storage).data() == nullptr) take_memory(builder.storage(storage));
  if (nodes.making == nullptr) {
    if (nodes.writing) nodes.writing->run();
    return std::move(nodes.writing);
  }
  auto reference = std::move(nodes.writing);
  if (!reference || !writes_in_place(*reference, nodes.results)) {
    for (const std::size_t storage : nodes.made) forget_memory(builder.storage(storage));
    reference = std::move(nodes.making);
    reference->run();
    adopts = true;
  }
  if (!nodes.native) return reference;
  const auto expected = digests(nodes.results);
  nodes.native->run();
  if (digests(nodes.results) == expected) {
    adopts = false;
    return std::move(nodes.native);
  }
  reference->run();
  return reference;
}

}  // namespace

// In the first run every piece of memory is allocated separately and released after its last use.
void Replay::add_nodes(ReplayBuilder& builder) {
  const Recording& recording = builder.recording();
  const auto intermediates = builder.intermediates();
  std::vector<std::unique_ptr<ReplayNode>> of_calls(recording.calls.size());
  std::vector<bool> is_adopted(recording.storages.size());
  std::vector<std::vector<std::size_t>> left(recording.calls.size());  // after each call
  for (const auto& [storage, need] : intermediates) left[need.last].push_back(storage);
  for (ReplayBuilder::Nodes& nodes : builder.nodes()) {
    bool adopts = false;
    const ReplayNode* const native = nodes.native.get();
    of_calls[nodes.call] = chosen(builder, nodes, adopts);
    if (native != nullptr && of_calls[nodes.call].get() == native) ++num_native_kernels_;
    if (adopts)
      for (const std::size_t storage : nodes.made) is_adopted[storage] = true;
    for (const std::size_t storage : left[nodes.call]) forget_memory(builder.storage(storage));
  }
  const std::vector<bool> comes_alone = plan(builder, intermediates, is_adopted);
  const std::vector<ReplayBuilder::Result> late = add_late_outputs(builder);
  for (std::size_t call = 0; call < of_calls.size(); ++call) {
    std::vector<c10::Storage> taken, released;
    for (const auto& [storage, need] : intermediates) {
      if (!comes_alone[storage]) continue;
      if (need.first == call && !is_adopted[storage]) taken.push_back(builder.storage(storage));
      if (need.last == call) released.push_back(builder.storage(storage));
    }
    for (const auto& [storage, need] : late)
      if (need.first == call && !is_adopted[storage]) taken.push_back(builder.storage(storage));
    if (!taken.empty()) nodes_.push_back(std::make_unique<MemoryNode>(take_memory, std::move(taken)));
    if (of_calls[call]) nodes_.push_back(std::move(of_calls[call]));
    if (!released.empty()) nodes_.push_back(std::make_unique<MemoryNode>(forget_memory, std::move(released)));
    if (call < recording.num_forward_calls) num_forward_ = nodes_.size();
  }
}

// Returns which memory is allocated separately: results that operators allocate themselves, and large pieces
// if one block for all results that operators write into would be held next to them for too long.
std::vector<bool> Replay::plan(const ReplayBuilder& builder,
                               const std::vector<ReplayBuilder::Result>& intermediates,
                               std::vector<bool> comes_alone) {
  std::vector<MemoryNeed> all, made, written;
  for (const auto& [storage, need] : intermediates) {
    all.push_back(need);
    (comes_alone[storage] ? made : written).push_back(need);
  }
  const bool is_too_much =
      20 * (plan_memory(written).num_bytes + most_at_once(made)) > 21 * most_at_once(all);
  written.clear();
  for (const auto& [storage, need] : intermediates) {
    if (is_too_much && need.num_bytes >= kLargePiece) comes_alone[storage] = true;
    if (comes_alone[storage]) continue;
    planned_.push_back({builder.storage(storage), 0});
    written.push_back(need);
  }
  const MemoryPlan plan = plan_memory(written);
  for (std::size_t i = 0; i < planned_.size(); ++i) planned_[i].offset = plan.offsets[i];
  num_bytes_ = plan.num_bytes;
  return comes_alone;
}

bool Replay::is_lent() const { return !std::ranges::equal(outputs_, own_uses_, {}, num_uses); }

void Replay::release(Memory memory) {
  for (const Planned& planned : planned_) forget_memory(planned.storage);
  memory_.clear();
  if (memory == Memory::intermediate || is_lent()) return;
  for (const c10::Storage& storage : own_outputs_) forget_memory(storage);
  for (const c10::Storage& storage : late_outputs_) forget_memory(storage);
}

void Replay::ensure_memory() {
  take_output_memory();
  if (memory_.get() != nullptr || num_bytes_ == 0) return;
  // Else the memory of eager steps would stay next to the block.
  if (num_bytes_ >= kLargeBlock) give_back_freed_memory();
  memory_ = c10::GetCPUAllocator()->allocate(num_bytes_);
  for (const Planned& planned : planned_)
    planned.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(static_cast<char*>(memory_.get()) + planned.offset, at::kCPU));
}

void Replay::run_forward() {
  ensure_memory();
  if (!late_outputs_.empty() && !is_lent()) std::ranges::for_each(late_outputs_, forget_memory);
  run(0, num_forward_);
}

void Replay::run_backward() { run(num_forward_, nodes_.size()); }

void Replay::run(std::size_t first, std::size_t last) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (std::size_t i = first; i < last; ++i) nodes_[i]->run();
}

}  // namespace kindling
