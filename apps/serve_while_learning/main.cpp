// Answers requests with compiled code while a fit makes better weights for it:
//
//   serve_while_learning digits_compiled.pt2 digits.pt2
//
// After each epoch the training thread hands its weights to the package that the other threads run. Every
// answer names the version of the weights that it was computed with. At the end the program computes all
// answers a second time, on one thread, and compares them.

#include <kindling/kindling.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace kd = kindling;

namespace {

constexpr std::size_t kServers = 2;

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::string median_and_largest(std::vector<double> times) {
  if (times.empty()) return "no time";
  std::ranges::sort(times);
  return std::to_string(std::llround(times[times.size() / 2])) + " us (median), " +
         std::to_string(std::llround(times.back())) + " us at most";
}

struct Answer {
  std::int64_t image = 0, version = 0;
  at::Tensor scores{};  // [1, 10]
  double microseconds = 0;
};

Answer ask(const kd::CompiledPackage& package, const at::Tensor& images, std::int64_t image) {
  const at::Tensor input = images.narrow(0, image, 1);
  const Clock::time_point begin = Clock::now();
  const std::vector<at::Tensor> outputs = package.run({&input, 1});
  return {image, outputs[1].item<std::int64_t>(), outputs[0], microseconds_since(begin)};
}

// One of the threads that answer; a pause separates its requests.
void serve(const std::stop_token& stop, const kd::CompiledPackage& package, const at::Tensor& images,
           std::vector<Answer>& answers) {
  for (std::int64_t i = 0; !stop.stop_requested(); ++i) {
    answers.push_back(ask(package, images, i % images.size(0)));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// Hands the weights over at the end of each epoch. Their version is the step that made them. It is a buffer
// of the model, so it changes in the package together with the weights.
class HandOver : public kd::Callback {
 public:
  explicit HandOver(kd::CompiledPackage& package) : package_(package) {}

  void on_fit_start(kd::Trainer&, kd::Module& model) override { keep(model); }  // version 0 is served already
  void on_epoch_end(kd::Trainer& trainer, kd::Module& model, const kd::Record&) override {
    kd::state_dict(model).find("version")->fill_(trainer.progress().global_step);
    keep(model);
    const Clock::time_point begin = Clock::now();
    package_.set_weights(dynamic_cast<kd::ExportedModule&>(model));  // copies: training continues at once
    times_.push_back(microseconds_since(begin));
  }

  const std::map<std::int64_t, kd::StateDict>& versions() const { return versions_; }
  const std::vector<double>& times() const { return times_; }

 private:
  // Only for the comparison at the end.
  void keep(kd::Module& model) {
    const kd::StateDict state = kd::copy_to(kd::state_dict(model), at::kCPU);
    versions_[state.find("version")->item<std::int64_t>()] = state;
  }

  kd::CompiledPackage& package_;
  std::map<std::int64_t, kd::StateDict> versions_;
  std::vector<double> times_;
};

// Computes the answers again on one thread, version by version, with another copy of the package. Returns
// true if all are bit-identical to those of the version that they name, and several versions were served.
bool check(const std::vector<Answer>& answers, const std::map<std::int64_t, kd::StateDict>& versions,
           const at::Tensor& labels, const at::Tensor& images, kd::ExportedModule& model,
           kd::CompiledPackage& package) {
  std::size_t equal = 0, served = 0;
  for (const auto& [version, state] : versions) {
    kd::load_state_dict(model, state);
    package.set_weights(model);
    std::int64_t total = 0, correct = 0;
    for (const Answer& answer : answers) {
      if (answer.version != version) continue;
      if (at::equal(ask(package, images, answer.image).scores, answer.scores)) ++equal;
      if (answer.scores.argmax(1).equal(labels.narrow(0, answer.image, 1))) ++correct;
      ++total;
    }
    if (total == 0) continue;
    ++served;
    std::cout << "version " << version << ": " << total << " answers, " << 100 * correct / total
              << " % correct\n";
  }
  std::cout << equal << " of " << answers.size()
            << " answers are bit-identical to those of the version they name\n";
  return equal == answers.size() && served >= 4;
}

bool serve_while_learning(const char* package_file, const char* program_file) {
  torch::manual_seed(0);
  const auto model = std::make_shared<kd::ExportedModule>(kd::ExportedModuleOptions{.file = program_file});
  kd::CompiledPackage package(package_file, *model);
  kd::Digits data({.batch_size = 32}), requests({.batch_size = 360});
  const auto loader = requests.val_dataloader();
  const kd::Batch batch = requests.on_after_batch_transfer(*loader->begin());  // bytes become numbers
  const at::Tensor images = batch[0];

  const auto hand_over = std::make_shared<HandOver>(package);
  std::array<std::vector<Answer>, kServers> answers_of;
  {
    std::vector<std::jthread> servers;  // stopped by their destructors, also after an error in the fit
    for (std::vector<Answer>& answers : answers_of)
      servers.emplace_back([&](const std::stop_token& stop) { serve(stop, package, images, answers); });
    kd::Trainer trainer({.max_epochs = 12, .num_threads = 1, .callbacks = {hand_over}});
    trainer.fit(model, data);
  }

  std::vector<Answer> answers;
  std::vector<double> times;
  for (const std::vector<Answer>& of_thread : answers_of)
    answers.insert(answers.end(), of_thread.begin(), of_thread.end());
  for (const Answer& answer : answers) times.push_back(answer.microseconds);
  std::cout << "a request took " << median_and_largest(times) << "\n"
            << "a handover took " << median_and_largest(hand_over->times()) << "\n";
  kd::CompiledPackage separate(package_file, *model);
  return check(answers, hand_over->versions(), batch.labels(), images, *model, separate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: serve_while_learning PACKAGE.pt2 PROGRAM.pt2\n";
    return 2;
  }
  try {
    return serve_while_learning(argv[1], argv[2]) ? 0 : 1;
  } catch (const kd::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
