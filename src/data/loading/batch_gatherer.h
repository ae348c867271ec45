#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/worker_pool.h"
#include "kindling/data/dataset.h"
#include "kindling/data/sample_random.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

struct GatherRequest {
  at::Tensor indices;  // int64 [batch]
  SampleStreams streams;
  Device device;  // that the batch is for
};

// Chooses the number of workers from the first batches: none where they cost little beside a step.
class MeasuredWorkers {
 public:
  // A batch was gathered on the calling thread. Counts the time since the last call ended as that of a step.
  void add(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end);
  std::optional<std::int64_t> count() const noexcept { return count_; }

 private:
  std::int64_t num_batches_ = 0;
  std::chrono::steady_clock::time_point last_end_{};
  double gather_seconds_ = 0, step_seconds_ = 0;
  std::optional<std::int64_t> count_;
};

// Gathers batches of a data set in host memory, on worker threads if there are some. For a GPU the memory is
// pinned. Buffers are reused once no one else holds them. Used from one thread.
class BatchGatherer {
 public:
  struct Buffer;
  // A batch that a worker gathers.
  struct Pending {
    GatherRequest request;
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<WorkerPool::Task> task;
  };

  // `num_workers`: absent: measured.
  BatchGatherer(std::shared_ptr<const Dataset> dataset, std::optional<std::int64_t> num_workers);
  ~BatchGatherer();

  // Returns how many batches should be under way while one is used; 0: there are no workers. The first batch
  // is always gathered on the calling thread, where draws from LibTorch's generator are noticed.
  std::int64_t num_ahead() const;
  // Both throw what gather has thrown; a DataError that is about a sample names it. gather() throws DataError
  // if workers were requested for a set that draws from LibTorch's generator.
  void gather(const GatherRequest& request, Batch& batch);
  void finish(const Pending& pending, Batch& batch);

  // Returns the workers, which live as long as someone holds them.
  std::shared_ptr<WorkerPool> workers();
  // Makes a worker gather a batch. Finish or cancel it before the gatherer and the workers are destroyed.
  Pending start(GatherRequest request, WorkerPool& workers);
  void cancel(const Pending& pending) noexcept;

 private:
  bool may_use_workers() const;
  std::int64_t num_workers() const;
  std::shared_ptr<Buffer> free_buffer(Device device);
  void fill(Buffer& buffer, const GatherRequest& request) const;
  void fill_or_name_sample(Buffer& buffer, const GatherRequest& request) const;
  void fill_alone(Buffer& buffer, const GatherRequest& request);
  bool draws_from_the_generator(Buffer& buffer, const GatherRequest& request) const;
  void call_dataset(const at::Tensor& indices, const SampleStreams& streams, Batch& batch) const;
  [[noreturn]] void rethrow_with_sample(const GatherRequest& request, const std::exception& error) const;

  std::shared_ptr<const Dataset> dataset_;
  std::optional<std::int64_t> wanted_workers_;
  std::shared_ptr<std::recursive_mutex> turn_;  // of a set that allows one call at a time; else nullptr
  bool is_checked_ = false;
  MeasuredWorkers measured_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::weak_ptr<WorkerPool> workers_;
};

}  // namespace kindling
