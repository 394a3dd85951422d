// A tree that was checked, so that the next tree of the same state is checked faster: an object or
// array of the same text is valid again, wherever it stands at the same depth. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepfreeze {

class TreeMemo {
 public:
  // Trees with more containers than this are not remembered.
  static constexpr std::size_t kContainersMax = std::size_t{1} << 20;

  // For the check of one tree, front to back: begin(); then at each container that is a node
  // skip(), and if that is 0, enter() and leave() around its content; end() if all was valid.
  void begin(std::string_view tree);
  void end();

  // The length of the container that begins there, if it is known to be valid.
  [[nodiscard]] std::size_t skip(std::size_t at, std::size_t depth);

  struct Entered {
    std::size_t own = 0;     // index of the container
    std::size_t resume = 0;  // of the old one that follows it
  };
  [[nodiscard]] Entered enter(std::size_t at, std::size_t depth);
  void leave(const Entered& entered, std::size_t end);

 private:
  // A tree has at most kTreeBytesMax bytes.
  struct Container {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t depth = 0;
    std::uint32_t after = 0;  // index of the next one that is not inside
  };

  std::string text_;                   // of the tree that was checked last
  std::vector<Container> known_;       // its containers, outer ones first
  std::string_view checked_;           // the tree that is checked now
  std::vector<Container> containers_;  // and its containers so far
  std::size_t next_ = 0;               // in known_: the one that stands here if nothing has changed
};

}  // namespace deepfreeze
