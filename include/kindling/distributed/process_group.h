#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/launch/launch_environment.h"

namespace kindling {

// How ranks find each other and how long they wait.
struct DistributedOptions {
  // Seconds that a rank waits for another one before it counts as lost. Must be longer than the longest time
  // between two steps of any rank (a validation, a checkpoint).
  double timeout_s = 1800;
  // "bf16": sends 32-bit gradients as bfloat16, half as many bytes; each gradient and each partial sum is
  // rounded to 8 significant bits. All other data is sent unchanged.
  std::string compression = "none";

  static constexpr auto fields = kindling::fields(
      kindling::field("timeout_s", &DistributedOptions::timeout_s,
                      {.doc = "seconds without an answer after which a process counts as lost",
                       .min = 0,
                       .min_excluded = true}),
      kindling::field("compression", &DistributedOptions::compression,
                      {.doc = "number format in which 32-bit gradients are sent", .choices = "none|bf16"}));
};

// The ranks that train a model together: `size()` of them, each with its `rank()` from 0 on. All ranks must
// make the collective calls in the same order; a call returns when all ranks have made it (on a GPU: when it
// is queued). Uses c10d, the library behind Python's torch.distributed: Gloo for tensors in host memory, NCCL
// for those of CUDA. Used from one thread.
//
// Work that outlives its group throws DistributedError when it is waited for.
//
// A rank that is gone, or silent for longer than the timeout, causes a DistributedError in all others. After
// such an error the group cannot be used any more.
class KINDLING_API ProcessGroup {
 public:
  // Joins the processes that a launcher has started: torchrun, srun, mpirun, `kindling fit` with
  // num_processes, or any that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Call it once, early; it
  // returns when all ranks have joined. Returns nullptr if this process trains alone. Throws ConfigError for
  // variables that cannot be used, and DistributedError if the others do not join within the timeout, or if
  // another process has the same rank.
  //
  // The store at MASTER_PORT has no authentication: use a trusted network.
  static std::shared_ptr<ProcessGroup> from_environment(const DistributedOptions& options = {});
  static std::shared_ptr<ProcessGroup> join(const LaunchEnvironment& place,
                                            const DistributedOptions& options = {});
  // Returns a group, by rank, whose members are threads of this process; use each from one thread. For tests.
  // Throws the error of a rank that cannot join.
  static std::vector<std::shared_ptr<ProcessGroup>> from_threads(std::int64_t size,
                                                                 const DistributedOptions& options = {});
  [[deprecated("use from_threads()")]] static std::vector<std::shared_ptr<ProcessGroup>> of_threads(
      std::int64_t size, const DistributedOptions& options = {}) {
    return from_threads(size, options);
  }
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  std::int64_t rank() const noexcept { return rank_; }
  std::int64_t size() const noexcept { return size_; }
  std::int64_t local_rank() const noexcept { return local_rank_; }  // on this machine: the index of its GPU
  const DistributedOptions& options() const noexcept { return options_; }

  // A started operation that may still be in progress.
  class Work {
   public:
    virtual ~Work() = default;
    // Waits for the result; for tensors on a GPU, makes the GPU's stream wait. Throws DistributedError.
    virtual void wait() = 0;
  };
  // Sums every element over all ranks; the result is bit-identical on each of them. `tensor`: contiguous,
  // with the same shape and dtype on all ranks; it is kept alive until the work is done.
  virtual std::unique_ptr<Work> start_all_reduce(const at::Tensor& tensor) = 0;
  void all_reduce(const at::Tensor& tensor) { start_all_reduce(tensor)->wait(); }
  // Sends the tensor of `root` to all others, in place. `tensor`: contiguous, with the same shape and dtype
  // on all ranks.
  virtual std::unique_ptr<Work> start_broadcast(const at::Tensor& tensor, std::int64_t root) = 0;
  // Sends the tensors of `root` to all others, in place; dtypes and shapes must be the same on all ranks.
  void broadcast(std::span<const at::Tensor> tensors, std::int64_t root = 0);
  // Sends `mine` to rank `other` and receives `theirs` from it. Contiguous tensors of the same shape and
  // dtype.
  virtual void exchange(const at::Tensor& mine, const at::Tensor& theirs, std::int64_t other) = 0;
  // Sends to one other rank, which receives into a tensor of the same shape and dtype; contiguous, in host
  // memory.
  virtual void send(const at::Tensor& tensor, std::int64_t to) = 0;
  virtual void receive(const at::Tensor& tensor, std::int64_t from) = 0;
  // Returns the bytes of every rank, by rank.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  void barrier() { all_gather({}); }

  // Throws DistributedError on every rank if one of them has a value that differs from that of rank 0, and
  // names the first such value and its rank.
  using NamedTexts = std::vector<std::pair<std::string, std::string>>;
  void require_same(const std::string& place, const NamedTexts& values);

  // Ends the group for a reason that the errors of the other ranks will name; they do not have to wait for
  // their timeout. Further calls throw DistributedError.
  virtual void leave(const std::string& reason) noexcept = 0;

 protected:
  ProcessGroup(std::int64_t rank, std::int64_t size, std::int64_t local_rank, DistributedOptions options);

 private:
  std::int64_t rank_, size_, local_rank_;
  DistributedOptions options_;
};

}  // namespace kindling
