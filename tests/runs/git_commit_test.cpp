#include "runs/git_commit.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

const std::string kFirst(40, 'a'), kSecond(40, 'b'), kSha256(64, 'c');

// A project with a config two directories below the one with .git, as git lays out its files.
class GitProject : public testing::Test {
 protected:
  void SetUp() override { write("project/configs/mnist/a.toml", ""); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << text;
  }
  GitCommit commit() const { return git_commit_of_project(scratch_ / "project/configs/mnist/a.toml"); }
  // "COMMIT BRANCH"
  std::string found() const { return commit().commit + " " + commit().branch; }

  const Scratch scratch_;
};

TEST_F(GitProject, HasACommitAndABranch) {
  write("project/.git/HEAD", "ref: refs/heads/feature/wide\n");
  EXPECT_EQ(found(), " feature/wide");  // before the first commit
  write("project/.git/refs/heads/feature/wide", kFirst + "\n");
  EXPECT_EQ(found(), kFirst + " feature/wide");
  write("project/.git/refs/heads/feature/wide", kSha256 + "\n");
  EXPECT_EQ(found(), kSha256 + " feature/wide");
}

TEST_F(GitProject, PrefersLooseReferencesToPackedOnes) {
  write("project/.git/HEAD", "ref: refs/heads/main\n");
  write("project/.git/packed-refs", "# pack-refs with: peeled fully-peeled sorted \n" + kSecond +
                                        " refs/heads/main-2\n" + kFirst + " refs/heads/main\n^" + kSecond +
                                        "\n");
  EXPECT_EQ(found(), kFirst + " main");
  write("project/.git/refs/heads/main", kSecond + "\n");
  EXPECT_EQ(found(), kSecond + " main");
}

TEST_F(GitProject, HasNoBranchIfHeadIsDetached) {
  write("project/.git/HEAD", kFirst + "\n");
  EXPECT_EQ(found(), kFirst + " ");
}

TEST_F(GitProject, MayBeAWorktreeOrASubmodule) {
  write("other/.git/packed-refs", kFirst + " refs/heads/side\n");
  write("other/.git/worktrees/project/HEAD", "ref: refs/heads/side\n");
  write("other/.git/worktrees/project/commondir", "../..\n");
  write("project/.git", "gitdir: " + (scratch_ / "other/.git/worktrees/project").string() + "\n");
  EXPECT_EQ(found(), kFirst + " side");
  write("other/.git/modules/project/HEAD", "ref: refs/heads/main\n");
  write("other/.git/modules/project/refs/heads/main", kSecond + "\n");
  write("project/.git", "gitdir: ../other/.git/modules/project\n");
  EXPECT_EQ(found(), kSecond + " main");
}

TEST_F(GitProject, FollowsAReferenceThatNamesAnother) {
  write("project/.git/HEAD", "ref: refs/heads/alias\n");
  write("project/.git/refs/heads/alias", "ref: refs/heads/main\n");
  write("project/.git/refs/heads/main", kFirst + "\n");
  EXPECT_EQ(found(), kFirst + " alias");
  write("project/.git/refs/heads/main", "ref: refs/heads/alias\n");  // endless
  EXPECT_EQ(found(), " alias");
}

TEST_F(GitProject, IsUnknownIfItsFilesAreDamaged) {
  write("secret", kFirst + "\n");
  for (const std::string& head :
       {std::string("ref: refs/heads/../../../secret\n"), std::string("ref: /etc/hostname\n"),
        std::string("ref: refs/heads/.invalid\n"), std::string("\0\xff", 2), std::string(), kFirst + "0\n",
        std::string(100000, 'a')}) {
    write("project/.git/HEAD", head);
    EXPECT_EQ(found(), " ") << head.substr(0, 40);
  }
  fs::remove_all(scratch_ / "project/.git");
  write("project/.git", "gitdir: nowhere\n");
  EXPECT_EQ(found(), " ");
  fs::remove(scratch_ / "project/.git");
  fs::create_directory(scratch_ / "project/.git");
  ASSERT_EQ(::mkfifo((scratch_ / "project/.git/HEAD").c_str(), 0600), 0);  // reading it would block
  write(".git/HEAD", kSecond + "\n");
  EXPECT_EQ(found(), kSecond + " ");
}

TEST_F(GitProject, IsThatOfTheCurrentDirectoryIfTheConfigIsInNone) {
  write("here/.git/HEAD", kSecond + "\n");
  fs::create_directories(scratch_ / "here/src");
  const fs::path former = fs::current_path();
  fs::current_path(scratch_ / "here/src");
  EXPECT_EQ(found(), kSecond + " ");
  EXPECT_EQ(git_commit_of_project("").commit, kSecond);
  EXPECT_EQ(git_commit_of_project("missing/a.toml").commit, kSecond);
  write("project/.git/HEAD", kFirst + "\n");
  EXPECT_EQ(found(), kFirst + " ");
  fs::current_path(former);
}

}  // namespace
}  // namespace kindling
