#include "format/tree_walker.h"

#include <fmt/format.h>

#include "base/try.h"
#include "format/base64.h"
#include "format/members.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kObjectTag = "object";

}  // namespace

Status TreeWalker::walk() {
  node();
  return reader_.finish();
}

void TreeWalker::node() {
  const JsonReader::Kind kind = reader_.peek();
  const bool is_container = kind == JsonReader::Kind::kObject || kind == JsonReader::Kind::kArray;
  // Keys are walked for their leaves.
  if (memo_ != nullptr && leaves_ == nullptr && is_container) return known_or_new(kind);
  new_node(kind);
}

void TreeWalker::known_or_new(JsonReader::Kind kind) {
  const std::size_t depth = reader_.depth();
  if (const std::size_t bytes = memo_->skip(reader_.at(), depth)) return reader_.skip(bytes);
  const TreeMemo::Entered entered = memo_->enter(reader_.at(), depth);
  new_node(kind);
  memo_->leave(entered, reader_.at());
}

void TreeWalker::new_node(JsonReader::Kind kind) {
  using enum JsonReader::Kind;
  switch (kind) {
    case kObject:
      return object();
    case kArray:
      return nodes("list");
    case kString:
      return leaf("str", shorten(reader_.read_string()));
    case kNumber:
      return number();
    default:
      reader_.read_word();
  }
  if (kind == kNull) return leaf("none", "null");
  leaf("bool", kind == kTrue ? "true" : "false");
}

void TreeWalker::number() {
  const std::string_view token = reader_.read_number();
  if (is_float_token(token)) {
    if (!to_double(token)) reader_.refuse("a number out of range");
    return leaf("float", std::string(token));
  }
  const auto whole = to_i64(token);
  if (!whole || *whole > kJsonIntegerMax || *whole < -kJsonIntegerMax) {
    return reader_.refuse("a whole number beyond 2^53 without its tag");
  }
  leaf("int", std::string(token));
}

void TreeWalker::object() {
  std::string_view key;
  reader_.enter_object();
  if (!reader_.next_member(key)) return leaf("dict", "empty");
  if (key == "$") return tagged();
  do {
    if (key == "$") reader_.refuse("a tag that is not the first member");
    child(key);
  } while (reader_.next_member(key));
}

void TreeWalker::tagged() {
  const Tag* tag = find_tag(reader_.read_string());
  if (tag == nullptr) return reader_.refuse("an unknown tag");
  std::array<bool, 2> seen{};
  std::array<std::string, 2> texts;
  bool is_leaf = true;
  std::string_view name;
  while (reader_.next_member(name)) {
    const std::size_t index = name == tag->members[0].name ? 0 : 1;
    if (name != tag->members.at(index).name || name.empty()) {
      reader_.skip_value();
      continue;
    }
    seen.at(index) = true;
    is_leaf = member(*tag, index, texts.at(index)) && is_leaf;
  }
  const bool has_two = !tag->members[1].name.empty();
  if (!seen[0] || (has_two && !seen[1])) {
    reader_.refuse(fmt::format("a {} without one of its members", tag->name));
  }
  if (tag->name == kObjectTag) enclosing_object(texts[0]);
  if (is_leaf) leaf(tag->name, has_two ? texts[0] + " " + texts[1] : std::move(texts[0]));
}

// Returns true, with the member's text, if the member is part of a leaf; false if leaves lie below
// it.
bool TreeWalker::member(const Tag& tag, std::size_t index, std::string& text) {
  const Content content = tag.members.at(index).content;
  switch (content) {
    case Content::kNode:
      node();
      return false;
    case Content::kNodes:
      nodes(tag.name);
      return false;
    case Content::kPairs:
      pairs(tag.name);
      return false;
    case Content::kFloat:
      text = float_text();
      return true;
    case Content::kWholes:
      text = wholes_text();
      return true;
    default:
      text = string_text(content);
      return true;
  }
}

void TreeWalker::nodes(std::string_view kind) {
  std::size_t count = 0;
  reader_.enter_array();
  for (; reader_.next_element(); ++count) child(fmt::format_int(count).c_str());
  if (count == 0) leaf(kind, "empty");
}

void TreeWalker::pairs(std::string_view kind) {
  bool any = false;
  reader_.enter_array();
  while (reader_.next_element()) {
    any = true;
    reader_.enter_array();
    if (!reader_.next_element()) return reader_.refuse("a pair without its key");
    const std::string key = pair_key();
    if (!reader_.next_element()) return reader_.refuse("a pair without its value");
    child(key);
    if (reader_.next_element()) return reader_.refuse("a pair of more than two");
  }
  if (!any) leaf(kind, "empty");
}

// Keys are nodes. As a part of a path they read as Python would write them, roughly.
std::string TreeWalker::pair_key() {
  const std::vector<TreeLeaf> leaves = leaves_of_node();
  std::string joined;
  for (const TreeLeaf& part : leaves) {
    if (!joined.empty()) joined += ", ";
    if (part.kind == "none") {
      joined += "None";
    } else if (part.kind == "bool") {
      joined += part.text == "true" ? "True" : "False";
    } else {
      joined += part.text;
    }
  }
  const bool one = leaves.size() == 1 && leaves.front().path.empty();
  return one ? joined : "(" + joined + ")";
}

std::string TreeWalker::float_text() {
  const std::vector<TreeLeaf> leaves = leaves_of_node();
  if (leaves.size() == 1 && leaves.front().kind == "float") return leaves.front().text;
  reader_.refuse("expected a float");
  return {};
}

std::string TreeWalker::wholes_text() {
  std::string text;
  reader_.enter_array();
  while (reader_.next_element()) {
    const std::string_view token = reader_.read_number();
    if (!to_i64(token)) reader_.refuse("expected a whole number");
    text.append(text.empty() ? "" : ", ").append(token);
  }
  return shorten("(" + text + ")");
}

std::string TreeWalker::string_text(Content content) {
  const std::string_view text = reader_.read_string();
  if (!text_fits(content, text)) reader_.refuse("a string that its tag does not allow");
  if (!reader_.ok() || leaves_ == nullptr) return {};
  if (content == Content::kBase64) return describe_bytes(decode_base64(text).value_or(""));
  return content == Content::kKey ? std::string(text) : shorten(text);
}

std::vector<TreeLeaf> TreeWalker::leaves_of_node() {
  std::vector<TreeLeaf> own;
  std::vector<TreeLeaf>* const outer = std::exchange(leaves_, &own);
  std::string path = std::exchange(path_, {});
  const bool was_in_key = std::exchange(in_key_, true);
  node();
  leaves_ = outer;
  path_ = std::move(path);
  in_key_ = was_in_key;
  return own;
}

void TreeWalker::child(std::string_view component) {
  const std::size_t parent_bytes = path_.size();
  if (in_key_) {
    path_ = ".";  // else a long name above many leaves takes the product of both
  } else if (leaves_ != nullptr) {
    append_component(path_, component);
  }
  node();
  path_.resize(parent_bytes);
}

void TreeWalker::leaf(std::string_view kind, std::string text) {
  if (leaves_ == nullptr || !reader_.ok()) return;
  listed_bytes_ += sizeof(TreeLeaf) + path_.size() + text.size();
  if (listed_bytes_ > kTreeListBytesMax) return reader_.refuse("its list would be too large");
  leaves_->push_back({.path = path_, .kind = std::string(kind), .text = std::move(text)});
}

void TreeWalker::enclosing_object(std::string type) {
  if (objects_ == nullptr || in_key_ || !reader_.ok()) return;
  listed_bytes_ += sizeof(TreeObject) + path_.size() + type.size();
  if (listed_bytes_ > kTreeListBytesMax) return reader_.refuse("its list would be too large");
  objects_->push_back({.path = path_, .type = std::move(type)});
}

}  // namespace deepfreeze
