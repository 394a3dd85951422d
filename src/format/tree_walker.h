// Walks a state tree once and checks it; lists its leaves if asked to. One thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "format/state_tree.h"
#include "format/tree_memo.h"
#include "format/tree_tags.h"
#include "json/json_reader.h"

namespace deepfreeze {

class TreeWalker {
 public:
  // `leaves` may be null: then the tree is only checked. `objects` may be: they are not listed.
  TreeWalker(std::string_view tree, std::vector<TreeLeaf>* leaves, std::vector<TreeObject>* objects)
      : reader_(tree, kTreeDepthMax), leaves_(leaves), objects_(objects) {}
  // Only checks; `memo` may know parts of the tree, and learns it.
  TreeWalker(std::string_view tree, TreeMemo& memo)
      : reader_(tree, kTreeDepthMax), leaves_(nullptr), objects_(nullptr), memo_(&memo) {}

  [[nodiscard]] Status walk();

 private:
  // Recursion is bounded: the reader refuses deep nesting.
  void node();
  void known_or_new(JsonReader::Kind kind);
  void new_node(JsonReader::Kind kind);
  void number();
  void object();
  void tagged();
  [[nodiscard]] bool member(const Tag& tag, std::size_t index, std::string& text);
  void nodes(std::string_view kind);
  void pairs(std::string_view kind);
  std::string pair_key();
  std::string float_text();
  std::string wholes_text();
  std::string string_text(Content content);
  std::vector<TreeLeaf> leaves_of_node();

  void child(std::string_view component);
  void leaf(std::string_view kind, std::string text);
  void enclosing_object(std::string type);

  JsonReader reader_;
  std::vector<TreeLeaf>* leaves_;
  std::vector<TreeObject>* objects_;
  TreeMemo* memo_ = nullptr;
  std::string path_;
  bool in_key_ = false;  // of a dict: only whether a path is empty counts there
  std::size_t listed_bytes_ = 0;
};

// "a.b" + "c" -> "a.b.c". '%' and '~' are escaped, an empty component becomes "%".
void append_component(std::string& path, std::string_view component);

// The text itself if it is short, else its beginning, its length and its CRC.
[[nodiscard]] std::string shorten(std::string_view text);
[[nodiscard]] std::string describe_bytes(std::string_view bytes);

}  // namespace deepfreeze
