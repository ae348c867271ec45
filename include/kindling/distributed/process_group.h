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

// How processes find each other and how long they wait.
struct DistributedOptions {
  // Seconds that a process waits for another one, which counts as lost after that: longer than the longest
  // time between two steps of one of them (a validation, a checkpoint).
  double timeout_s = 1800;
  // "bf16": gradients of 32 bits travel as bfloat16, half as many bytes; each is rounded to 8 significant
  // bits, as is each sum on its way. All else that travels stays what it is.
  std::string compression = "none";

  static constexpr auto fields = kindling::fields(
      kindling::field("timeout_s", &DistributedOptions::timeout_s,
                      {.doc = "seconds without an answer after which a process counts as lost",
                       .min = 0,
                       .min_excluded = true}),
      kindling::field("compression", &DistributedOptions::compression,
                      {.doc = "number format in which 32-bit gradients are sent", .choices = "none|bf16"}));
};

// The processes that train a model together: `size()` of them, each with its own `rank()` from 0 on. What
// they do together, each of them calls, in the same order; it returns when all have done so (on a card: when
// it is queued). Over c10d, the library behind Python's torch.distributed: Gloo for tensors in host memory,
// NCCL for those of CUDA. Used from one thread.
//
// A process that is gone, or silent for longer than the timeout, is a DistributedError in all others; a group
// that has met one is of no use any more.
class KINDLING_API ProcessGroup {
 public:
  // Joins the processes that a launcher has started: torchrun, srun, mpirun, `kindling fit` with
  // num_processes, or whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Call it once, early; it
  // returns when all have come. nullptr: this process trains alone. Throws ConfigError for variables that
  // cannot be used, DistributedError when the others do not come within the timeout.
  //
  // What listens at MASTER_PORT asks nobody who he is: the network must be one's own.
  static std::shared_ptr<ProcessGroup> from_environment(const DistributedOptions& options = {});
  static std::shared_ptr<ProcessGroup> join(const LaunchEnvironment& place,
                                            const DistributedOptions& options = {});
  // A group whose members, by rank, are threads of this process, each to be used from one of them: for tests
  // of one's own.
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
  std::int64_t local_rank() const noexcept { return local_rank_; }  // on this machine: the card it takes
  const DistributedOptions& options() const noexcept { return options_; }

  // What has been started and may still be under way.
  class Work {
   public:
    virtual ~Work() = default;
    // Until the result is there; for tensors on a card, until the card will see it. Throws DistributedError.
    virtual void wait() = 0;
  };
  // Every element becomes the sum over all processes, the same bits in each of them. `tensor`: contiguous, of
  // one shape and dtype everywhere; it is kept until the work is done.
  virtual std::unique_ptr<Work> start_all_reduce(const at::Tensor& tensor) = 0;
  void all_reduce(const at::Tensor& tensor) { start_all_reduce(tensor)->wait(); }
  // That of `root` comes to all others, in place. `tensor`: contiguous, of one shape and dtype everywhere.
  virtual std::unique_ptr<Work> start_broadcast(const at::Tensor& tensor, std::int64_t root) = 0;
  // The tensors of `root` come to all others, in place; dtypes and shapes are those of everywhere.
  void broadcast(std::span<const at::Tensor> tensors, std::int64_t root = 0);
  // Gives `mine` to that process and takes as much from it. Contiguous tensors of one shape and dtype.
  virtual void exchange(const at::Tensor& mine, const at::Tensor& theirs, std::int64_t other) = 0;
  // To one other process, which receives into a tensor of the same shape and dtype; contiguous, in host
  // memory.
  virtual void send(const at::Tensor& tensor, std::int64_t to) = 0;
  virtual void receive(const at::Tensor& tensor, std::int64_t from) = 0;
  // The bytes that each process gives, by rank.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  void barrier() { all_gather({}); }

  // Throws DistributedError in every process when one of them has another value than process 0, and names
  // the first such value and the process.
  using NamedTexts = std::vector<std::pair<std::string, std::string>>;
  void require_same(const std::string& place, const NamedTexts& values);

  // Ends the group for a reason that the other processes will name in their error; they need not wait for
  // their timeout. Further calls throw DistributedError.
  virtual void leave(const std::string& reason) noexcept = 0;

 protected:
  ProcessGroup(std::int64_t rank, std::int64_t size, std::int64_t local_rank, DistributedOptions options);

 private:
  std::int64_t rank_, size_, local_rank_;
  DistributedOptions options_;
};

}  // namespace kindling
