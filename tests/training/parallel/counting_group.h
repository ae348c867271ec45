#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Counts what is reduced between ranks.
class CountingGroup : public ProcessGroup {
 public:
  explicit CountingGroup(const std::shared_ptr<ProcessGroup>& group)
      : CountingGroup(group, group->options()) {}
  CountingGroup(std::shared_ptr<ProcessGroup> group, const DistributedOptions& options)
      : ProcessGroup(group->rank(), group->size(), group->local_rank(), options), group_(std::move(group)) {}
  std::unique_ptr<Work> start_all_reduce(const at::Tensor& tensor) override {
    ++num_started;
    num_bytes += static_cast<std::int64_t>(tensor.nbytes());
    return group_->start_all_reduce(tensor);
  }
  std::unique_ptr<Work> start_broadcast(const at::Tensor& tensor, std::int64_t root) override {
    ++num_broadcasts;
    return group_->start_broadcast(tensor, root);
  }
  void send(const at::Tensor& tensor, std::int64_t to) override { group_->send(tensor, to); }
  void receive(const at::Tensor& tensor, std::int64_t from) override { group_->receive(tensor, from); }
  void exchange(const at::Tensor& mine, const at::Tensor& theirs, std::int64_t other) override {
    group_->exchange(mine, theirs, other);
  }
  std::vector<std::string> all_gather(const std::string& bytes) override { return group_->all_gather(bytes); }
  void leave(const std::string& reason) noexcept override { group_->leave(reason); }
  int num_started = 0, num_broadcasts = 0;
  std::int64_t num_bytes = 0;

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace kindling
