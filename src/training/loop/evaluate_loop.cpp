#include "training/loop/evaluate_loop.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/libtorch_errors.h"
#include "kindling/tensors/move.h"

namespace kindling {

EvaluationScope::EvaluationScope(Module& model, const std::shared_ptr<TrainingContext>& context,
                                 EpochLog& log)
    : deterministic_(context->deterministic_operators),
      products_(context->options.float32_matmul_precision),
      evaluation_(model),
      former_trainer_(model, model.trainer()),
      log_(context->calls, &log) {
  attach(model, context);
  precision_.emplace(model, context->placement.precision);
}

bool evaluate_loop(Module& model, EvaluationStep step, BatchSource& source, EpochLog& log,
                   const EvaluationHooks& hooks) {
  log.clear();
  source.seek(0);
  Batch batch;
  for (std::int64_t i = 0; source.next(batch); ++i) {
    if (hooks.stop != nullptr && hooks.stop->stop_requested()) return false;
    with_memory_errors("evaluation batch", i + 1, batch.num_samples(), [&] {
      const AutocastScope autocast(source.placement().precision, log.device());
      model.take_loss_weight();  // of a step that has thrown
      with_batch_in_errors(batch, [&] { (model.*step)(batch); });
      model.take_loss_weight();  // of a step that has not logged it
    });
    log.append({.batch = i, .weight = static_cast<double>(batch.num_valid())});
    source.end_batch();
    if (hooks.after_batch) hooks.after_batch(i + 1);
  }
  log.move_to_host();
  return true;
}

namespace {

// The outputs of all batches in one tensor. A tensor per batch would keep the memory before it from being
// used again for the next batch, which needs a little more than was freed: large batches would add up.
class CollectedOutputs {
 public:
  void append(const at::Tensor& outputs) {
    if (outputs.dim() == 0 || (all_.defined() && !fits(outputs))) {
      // Joins other types; for other shapes, the error names them.
      all_ = all_.defined() ? at::cat({taken(), outputs}) : at::cat({outputs});
      size_ = all_.size(0);
      return;
    }
    const std::int64_t end = size_ + outputs.size(0);
    if (!all_.defined() || end > all_.size(0)) grow(outputs, end);
    all_.narrow(0, size_, outputs.size(0)).copy_(outputs);
    size_ = end;
  }
  // Without spare memory. Throws as at::cat() if there were no outputs.
  at::Tensor whole() const {
    if (!all_.defined()) return at::cat(std::vector<at::Tensor>());
    return size_ == all_.size(0) ? all_ : taken().clone();
  }

 private:
  at::Tensor taken() const { return all_.narrow(0, 0, size_); }
  bool fits(const at::Tensor& outputs) const {
    return outputs.scalar_type() == all_.scalar_type() && outputs.device() == all_.device() &&
           outputs.sizes().slice(1) == all_.sizes().slice(1);
  }
  void grow(const at::Tensor& outputs, std::int64_t at_least) {
    std::vector<std::int64_t> sizes = outputs.sizes().vec();
    sizes[0] = std::max(2 * size_, at_least);
    at::Tensor larger = at::empty(sizes, outputs.options().memory_format(at::MemoryFormat::Contiguous));
    if (size_ > 0) larger.narrow(0, 0, size_).copy_(taken());
    all_ = std::move(larger);
  }

  at::Tensor all_{};
  std::int64_t size_ = 0;
};

}  // namespace

at::Tensor predict_loop(Module& model, BatchSource& source) {
  source.keep_order();
  source.seek(0);
  CollectedOutputs outputs;
  Batch batch;
  while (source.next(batch)) {
    const AutocastScope autocast(source.placement().precision, source.placement().device());
    outputs.append(with_batch_in_errors(
        batch, [&] { return source.data().unscale_targets(model.predict_step(batch)); }));
  }
  return move_to(outputs.whole(), cpu());
}

}  // namespace kindling
