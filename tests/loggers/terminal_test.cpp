#include "kindling/loggers/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace kindling {
namespace {

class Terminal : public testing::Test {
 protected:
  void SetUp() override {
    const winsize size = {.ws_row = 24, .ws_col = 117, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::openpty(&master_, &terminal_, nullptr, nullptr, &size) != 0)
      GTEST_SKIP() << "no pseudo-terminals here";
    ASSERT_EQ(::pipe(pipe_), 0);
    ::unsetenv("NO_COLOR");
    ::setenv("TERM", "xterm", 1);
  }
  void TearDown() override {
    for (const int descriptor : {master_, terminal_, pipe_[0], pipe_[1]}) ::close(descriptor);
  }

  int master_ = -1, terminal_ = -1, pipe_[2] = {-1, -1};
};

TEST_F(Terminal, IsDistinguishedFromAPipe) {
  EXPECT_TRUE(is_terminal(terminal_));
  EXPECT_FALSE(is_terminal(pipe_[1]));
  EXPECT_FALSE(is_terminal(-1));
}

TEST_F(Terminal, ReturnsItsWidth) {
  EXPECT_EQ(terminal_width(terminal_), 117);
  EXPECT_EQ(terminal_width(pipe_[1]), 80);
}

TEST_F(Terminal, WantsColorUnlessTheEnvironmentDisablesIt) {
  EXPECT_TRUE(wants_color(terminal_));
  EXPECT_FALSE(wants_color(pipe_[1]));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_color(terminal_));
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(wants_color(terminal_));
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(wants_color(terminal_));
}

// The standard output of Open MPI's processes, which ends in files.
TEST_F(Terminal, WantsNoColorWithoutASize) {
  const winsize size{};
  ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  EXPECT_FALSE(wants_color(terminal_));
}

}  // namespace
}  // namespace kindling
