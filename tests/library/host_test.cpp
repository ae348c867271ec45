// A program that does not use LibTorch, has its own log (spdlog with a replaced default logger), and loads a
// plug-in that trains with Kindling. The state of its process must not change.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <csignal>

#include "host_process.h"
#include "training_plugin.h"

namespace kindling {
namespace {

std::ostringstream host_log;

// Filled by main: loading is over before the first test begins.
HostProcess before_loading, after_loading;
std::string printed_while_loading;
void* plugin = nullptr;

template <class Function>
Function* of_plugin(const char* name) {
  return reinterpret_cast<Function*>(dlsym(plugin, name));
}

std::filesystem::path capture_file() {
  return std::filesystem::path(testing::TempDir()) / ("kindling-host-" + std::to_string(::getpid()));
}

// Settings of the host, which must not be reset.
void make_choices() {
  auto logger =
      std::make_shared<spdlog::logger>("host", std::make_shared<spdlog::sinks::ostream_sink_mt>(host_log));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  std::setlocale(LC_ALL, "C.UTF-8");
  std::signal(SIGINT, [](int) {});
  std::signal(SIGPIPE, SIG_IGN);
}

void load_plugin() {
  make_choices();
  before_loading = host_process();
  CapturedOutput output(capture_file());
  plugin = dlopen(KINDLING_TRAINING_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  printed_while_loading = output.text();
  after_loading = host_process();
  if (plugin != nullptr) of_plugin<void()>("plugin_prepare")();
}

class Host : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(plugin, nullptr) << dlerror(); }
  // The number of actions that went as expected.
  int train() { return of_plugin<int()>("plugin_train")(); }
  std::string settings() { return of_plugin<const char*()>("plugin_settings")(); }
};

TEST_F(Host, IsUnchangedByLoadingTheLibrary) {
  EXPECT_EQ(after_loading, before_loading);
  EXPECT_EQ(printed_while_loading, "");
}

TEST_F(Host, IsUnchangedByTraining) {
  const HostProcess before = host_process();
  EXPECT_EQ(train(), kThingsThatPluginTrainDoes);
  EXPECT_EQ(host_process(), before);
}

TEST_F(Host, KeepsItsDenormalSetting) {
  const unsigned control = _mm_getcsr();
  _mm_setcsr(control | 0x8040);  // flush to zero, denormals are zero
  EXPECT_EQ(train(), kThingsThatPluginTrainDoes);
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040U);
  _mm_setcsr(control);
}

TEST_F(Host, KeepsLibTorchsSettingsAndRandomStream) {
  const std::string before = settings();
  EXPECT_NE(before.find("threads 3 "), std::string::npos) << before;
  EXPECT_EQ(train(), kThingsThatPluginTrainDoes);
  EXPECT_EQ(settings(), before);
}

TEST_F(Host, SeesNothingPrinted) {
  CapturedOutput output(capture_file());
  const int done = train();
  EXPECT_EQ(output.text(), "");
  EXPECT_EQ(done, kThingsThatPluginTrainDoes);
}

TEST_F(Host, KeepsItsLogSeparate) {
  host_log.str("");
  spdlog::info("before");
  EXPECT_EQ(train(), kThingsThatPluginTrainDoes);
  spdlog::info("after");
  EXPECT_EQ(host_log.str(), "before\nafter\n");
}

TEST_F(Host, KeepsItsFilesAndThreads) {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  train();  // LibTorch makes its threads at the first operator that uses them
  const auto files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  EXPECT_EQ(train(), kThingsThatPluginTrainDoes);
  EXPECT_EQ(entries("/proc/self/fd"), files);
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace kindling

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kindling::load_plugin();
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove(kindling::capture_file());
  return result;
}
