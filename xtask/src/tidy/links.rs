//! Links between pages: each one leads somewhere, and from the README a reader comes to every page.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Finding;

/// The page that readers begin with.
const FIRST: &str = "README.md";

/// A page as far as links go.
struct Page {
    /// Destinations as they are written, with their lines.
    links: Vec<(usize, String)>,
    /// Names that links can have behind `#`, as GitHub makes them of headings.
    anchors: BTreeSet<String>,
}

/// Checks the Markdown pages among `files`, whose text `pages` has by path.
pub(super) fn check(pages: &BTreeMap<String, String>, files: &[String]) -> Vec<Finding> {
    let read: BTreeMap<&str, Page> = pages.iter().map(|(path, text)| (path.as_str(), page(text))).collect();
    let is_there = |path: &str| {
        let folder = format!("{path}/");
        files.iter().any(|file| file == path || file.starts_with(&folder))
    };
    let mut findings = Vec::new();
    let mut leads_to: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, page) in &read {
        for (line, link) in page.links.iter().filter(|(_, link)| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let Some(target) = resolve(path, file) else {
                findings.push(Finding::new(path, *line, format!("the link {link} leads out of the repository")));
                continue;
            };
            if !is_there(&target) {
                findings.push(Finding::new(
                    path,
                    *line,
                    format!("the link {link} leads nowhere: there is no {target}"),
                ));
                continue;
            }
            let misses = |anchor: &str| read.get(target.as_str()).is_some_and(|page| !page.anchors.contains(anchor));
            if let Some(anchor) = anchor.filter(|anchor| misses(anchor)) {
                findings.push(Finding::new(path, *line, format!("{target} has no heading for #{anchor}")));
            }
            leads_to.entry(path).or_default().push(target);
        }
    }
    let unreached = read.keys().filter(|path| !reached(&leads_to).contains(**path));
    findings.extend(unreached.map(|path| Finding::new(path, 1, format!("no link leads here from {FIRST}"))));
    findings
}

/// Pages to which links lead from the first one. Bound: each page is looked at once.
fn reached<'a>(leads_to: &'a BTreeMap<&str, Vec<String>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([FIRST]);
    let mut next = vec![FIRST];
    while let Some(page) = next.pop() {
        for target in leads_to.get(page).into_iter().flatten() {
            if reached.insert(target.as_str()) {
                next.push(target);
            }
        }
    }
    reached
}

/// The path of a link's file, relative to the repository; none outside of it.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn page(text: &str) -> Page {
    let mut page = Page { links: Vec::new(), anchors: BTreeSet::new() };
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = text[..range.start].matches('\n').count() + 1;
                page.links.push((line, dest_url.into_string()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take().map(|heading| anchor(&heading))),
            _ => {}
        }
    }
    page
}

/// A heading as GitHub makes an anchor of it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<_, _> = pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let files: Vec<_> = pages.keys().cloned().chain(["docs/gallery/one.png".to_owned()]).collect();
        check(&pages, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_to_files_folders_and_headings() {
        let good = [
            (
                "README.md",
                "[a](docs/a.md) [b](docs/a.md#what-is-it-and-why) [web](https://x.y/z) [here](#first)\n# First\n",
            ),
            ("docs/a.md", "# What is it, and `why`?\n[up](../README.md) [folder](gallery) ![one](gallery/one.png)\n"),
        ];
        assert_eq!(found(&good), Vec::<String>::new());
        let bad = [
            ("README.md", "text\n\n[a](docs/a.md#why) [b](docs/b.md) [c](../c.md)\n```\n[not a link](none.md)\n```\n"),
            ("docs/a.md", "# What\n"),
            ("docs/c.md", "[a](a.md)\n"),
        ];
        assert_eq!(
            found(&bad),
            [
                "README.md:3: docs/a.md has no heading for #why",
                "README.md:3: the link docs/b.md leads nowhere: there is no docs/b.md",
                "README.md:3: the link ../c.md leads out of the repository",
                "docs/c.md:1: no link leads here from README.md",
            ]
        );
    }
}
