// Listings, page by page. Keys come encoded, since XML can't hold all of them.
#include <fmt/format.h>

#include "base/try.h"
#include "object/s3_client.h"
#include "object/s3_exchange.h"
#include "object/s3_text.h"
#include "object/signature.h"
#include "object/xml.h"

namespace deepfreeze {
namespace {

// Page after page of one kind of listing.
class Pages {
 public:
  Pages(S3Exchange& exchange, std::string_view operation, std::string_view prefix)
      : exchange_(exchange), operation_(operation), prefix_(prefix) {}

  // `query` is without the parameters that name the page.
  [[nodiscard]] Result<XmlElement> read(const std::string& query, std::string_view root);
  [[nodiscard]] std::string prefix_query() const {
    return "prefix=" + uri_encode(base() + std::string(prefix_), false);
  }
  // The key, below the prefix of the place, of an element of the page. It begins with `prefix`.
  [[nodiscard]] Result<std::string> key_in(const XmlElement& page, std::string_view text) const;
  // kIo if this is more than a tier has, or the page that came before.
  [[nodiscard]] Status count(std::size_t keys, const std::string& next_page);
  [[nodiscard]] std::unexpected<Error> fault(std::string_view why) const {
    return fail(ErrorCode::kIo, fmt::format("{} {}: {}", operation_, exchange_.place().url(), why));
  }

 private:
  [[nodiscard]] std::string base() const {
    const std::string& prefix = exchange_.place().prefix;
    return prefix.empty() ? "" : prefix + "/";
  }

  S3Exchange& exchange_;
  const std::string_view operation_;
  const std::string_view prefix_;
  std::size_t keys_ = 0;
  std::string page_;
};

Result<XmlElement> Pages::read(const std::string& query, std::string_view root) {
  DF_TRY_VOID(check_xml_library());
  XmlElement page;
  auto asked = exchange_.ask({.operation = operation_,
                              .method = "GET",
                              .key = "",
                              .query = query,
                              .find_fault = [&](const HttpResponse& response) -> std::string {
                                auto parsed = parse_xml(response.body);
                                if (!parsed) return parsed.error().message();
                                page = *std::move(parsed);
                                return page.name == root ? "" : "the answer is no listing";
                              }});
  if (asked) return page;
  const Error& error = asked.error();
  // A bucket that is not there has a code of its own; kNotFound would pass for an empty place.
  return fail(error.code() == ErrorCode::kNotFound ? ErrorCode::kIo : error.code(),
              error.message());
}

// Not every store encodes when it is asked to.
std::optional<std::string> decoded(const XmlElement& page, std::string_view text) {
  return page.text_of("EncodingType") == "url" ? url_decoded(text) : std::string(text);
}

Result<std::string> Pages::key_in(const XmlElement& page, std::string_view text) const {
  const auto key = decoded(page, text);
  if (!key || !key->starts_with(base() + std::string(prefix_))) {
    return fault("a key in the answer was not asked for");
  }
  return key->substr(base().size());
}

Status Pages::count(std::size_t keys, const std::string& next_page) {
  keys_ += keys + 1;  // an empty page counts, too
  if (keys_ > kListKeysMax) return fault(fmt::format("there are more than {} keys", kListKeysMax));
  if (next_page.empty()) return fault("a page is not the last and does not name the next");
  if (next_page == page_) return fault("the pages of the answer go round");
  page_ = next_page;
  return {};
}

bool is_truncated(const XmlElement& page) { return page.text_of("IsTruncated") == "true"; }

Status add_page(const Pages& pages, std::string_view prefix, const XmlElement& page,
                Listing& listing) {
  for (const XmlElement& element : page.children) {
    if (element.name == "Contents") {
      DF_TRY(std::string key, pages.key_in(page, element.text_of("Key")));
      const auto bytes = parse_number(element.text_of("Size"));
      if (!bytes) return pages.fault("an object in the answer has no size");
      listing.objects.push_back(
          {.key = std::move(key), .bytes = *bytes, .etag = std::string(element.text_of("ETag"))});
    } else if (element.name == "CommonPrefixes") {
      DF_TRY(std::string directory, pages.key_in(page, element.text_of("Prefix")));
      if (directory.size() <= prefix.size()) continue;  // the level itself
      if (directory.ends_with('/')) directory.pop_back();
      listing.directories.push_back(std::move(directory));
    }
  }
  return {};
}

}  // namespace

Result<Listing> S3Client::list(std::string_view prefix, bool one_level) {
  Pages pages(*exchange_, "list", prefix);
  Listing listing;
  std::string token;
  while (true) {
    std::string query;
    if (!token.empty()) query += "continuation-token=" + uri_encode(token, false) + "&";
    if (one_level) query += "delimiter=%2F&";
    query += "encoding-type=url&list-type=2&max-keys=1000&" + pages.prefix_query();
    DF_TRY(const XmlElement page, pages.read(query, "ListBucketResult"));
    DF_TRY_VOID(add_page(pages, prefix, page, listing));
    if (!is_truncated(page)) return listing;
    token = page.text_of("NextContinuationToken");
    DF_TRY_VOID(pages.count(page.children.size(), token));
  }
}

Result<std::vector<OpenUpload>> S3Client::open_uploads(std::string_view prefix) {
  Pages pages(*exchange_, "list uploads to", prefix);
  std::vector<OpenUpload> uploads;
  std::string markers;
  while (true) {
    const std::string query =
        "encoding-type=url" + markers + "&" + pages.prefix_query() + "&uploads=";
    DF_TRY(const XmlElement page, pages.read(query, "ListMultipartUploadsResult"));
    for (const XmlElement& element : page.children) {
      if (element.name != "Upload") continue;
      DF_TRY(std::string key, pages.key_in(page, element.text_of("Key")));
      uploads.push_back({.key = std::move(key),
                         .upload_id = std::string(element.text_of("UploadId")),
                         .initiated = std::string(element.text_of("Initiated"))});
    }
    if (!is_truncated(page)) return uploads;
    const auto key = decoded(page, page.text_of("NextKeyMarker"));
    if (!key) return fail(ErrorCode::kIo, "list uploads: the next page has no name");
    markers = fmt::format("&key-marker={}&upload-id-marker={}", uri_encode(*key, false),
                          uri_encode(page.text_of("NextUploadIdMarker"), false));
    DF_TRY_VOID(pages.count(page.children.size(), markers));
  }
}

}  // namespace deepfreeze
