// A disk that loses its power: what it may hold afterwards, by what has been synced and what has not.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kindling {

inline constexpr int kRootFolder = -1;

// A call that changes a folder or a file in it. Both are numbered, as they may change their names.
struct DiskEvent {
  enum class Kind { name, unname, truncate, write, sync_file, sync_folder, make_folder } kind;
  int file = kRootFolder;    // or folder
  std::string name{};        // name, unname, make_folder
  std::string bytes{};       // write
  int folder = kRootFolder;  // name, unname, make_folder: where
  std::size_t size = 0;      // truncate
};

// Path → bytes; the path of a folder ends with a slash.
using FolderState = std::map<std::string, std::string>;
using IsRelevant = std::function<bool(const std::string& path)>;  // of files; the others are not looked at

// After each event: what is there for those who run, and what is on the disk for sure.
class Disk {
 public:
  // Begins with these files in the root folder, which are numbered from 0 in their order.
  explicit Disk(const FolderState& before = {}) {
    int count = 0;
    for (const auto& [name, bytes] : before) {
      files_[count] = {.now = bytes, .synced = bytes};
      folders_[kRootFolder].names[name] = count++;
    }
  }

  void apply(const DiskEvent& event) {
    using Kind = DiskEvent::Kind;
    if (event.kind == Kind::make_folder) folders_[event.file];
    if (event.kind == Kind::name && !folders_.contains(event.file)) files_[event.file];
    if (event.kind == Kind::name || event.kind == Kind::unname || event.kind == Kind::make_folder)
      folders_[event.folder].changes.push_back(event);
    if (event.kind == Kind::truncate) files_[event.file].now.resize(event.size);
    if (event.kind == Kind::write) files_[event.file].now += event.bytes;
    if (event.kind == Kind::sync_file) files_[event.file].synced = files_[event.file].now;
    if (event.kind != Kind::sync_folder) return;
    Folder& folder = folders_[event.file];
    for (const DiskEvent& change : folder.changes) apply_to(folder.names, change);
    folder.changes.clear();
  }

  // All that the disk may hold when the power fails now: of each file that is not synced nothing new, half of
  // it, zeros in its place or all; of a folder's changes since its last sync any choice. File systems that
  // keep an order among them allow fewer.
  std::set<FolderState> states_after_power_loss(const IsRelevant& is_relevant = {}) const {
    return states_of(kRootFolder, "", is_relevant);
  }

 private:
  using Names = std::map<std::string, int>;
  struct File {
    std::string now, synced;
  };
  struct Folder {
    Names names;                       // as of the last sync
    std::vector<DiskEvent> changes{};  // since
  };

  static void apply_to(Names& names, const DiskEvent& change) {
    if (change.kind == DiskEvent::Kind::unname)
      names.erase(change.name);
    else
      names[change.name] = change.file;
  }

  static std::vector<std::string> versions_of(const File& file) {
    if (file.now == file.synced) return {file.now};
    const std::string half = file.now.substr(0, (file.synced.size() + file.now.size()) / 2);
    return {file.synced, half, std::string(file.now.size(), '\0'), file.now};
  }

  std::set<FolderState> states_of(int number, const std::string& path, const IsRelevant& is_relevant) const {
    const Folder& folder = folders_.at(number);
    std::vector<DiskEvent> changes;
    for (const DiskEvent& change : folder.changes)
      if (folders_.contains(change.file) || !is_relevant || is_relevant(path + change.name))
        changes.push_back(change);
    std::set<FolderState> states;
    for (std::size_t choice = 0; choice < std::size_t{1} << changes.size(); ++choice) {
      Names names = folder.names;
      for (std::size_t i = 0; i < changes.size(); ++i)
        if ((choice >> i & 1) != 0) apply_to(names, changes[i]);
      states.merge(states_with(names, path, is_relevant));
    }
    return states;
  }

  std::set<FolderState> states_with(const Names& names, const std::string& path,
                                    const IsRelevant& is_relevant) const {
    std::set<FolderState> states{FolderState{}};
    for (const auto& [name, number] : names) {
      const std::set<FolderState> choices = choices_of(number, path + name, is_relevant);
      std::set<FolderState> longer;
      for (const FolderState& state : states)
        for (FolderState choice : choices) {
          choice.insert(state.begin(), state.end());
          longer.insert(std::move(choice));
        }
      states = std::move(longer);
    }
    return states;
  }

  std::set<FolderState> choices_of(int number, const std::string& path, const IsRelevant& is_relevant) const {
    std::set<FolderState> choices;
    if (folders_.contains(number)) {
      for (FolderState state : states_of(number, path + "/", is_relevant)) {
        state[path + "/"] = "";
        choices.insert(std::move(state));
      }
    } else if (is_relevant && !is_relevant(path)) {
      choices.insert(FolderState{});
    } else {
      for (const std::string& bytes : versions_of(files_.at(number)))
        choices.insert(FolderState{std::pair(path, bytes)});
    }
    return choices;
  }

  std::map<int, File> files_;
  std::map<int, Folder> folders_{{kRootFolder, {}}};
};

}  // namespace kindling
