import { Anchor, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";

import { t } from "../i18n";
import { AREAS } from "./areas";

/** What the page says it is: its heading, and the part of the area that is chosen. */
interface Shown {
  heading: string;
  part: string;
  /** The heading says itself where it is. */
  placed: boolean;
}

/** Follows the headings of whatever page is shown, so that each names its tab by being there. */
function useShown(): Shown {
  const [shown, setShown] = useState<Shown>({ heading: "", part: "", placed: false });
  useEffect(() => {
    let frame = 0;
    const look = () => {
      const element = document.querySelector("h1");
      const heading = named(element);
      const placed = element?.querySelector("a") != null;
      const part = named(document.querySelector("#page [role=tab][aria-selected=true], #page nav a[aria-current=page]"));
      setShown((before) => (before.heading === heading && before.part === part && before.placed === placed ? before : { heading, part, placed }));
    };
    const observer = new MutationObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(look);
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["aria-selected", "aria-current"] });
    look();
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
    };
  }, []);
  return shown;
}

/** The text without links in it: those lead to other places. */
function named(element: Element | null): string {
  if (element === null) return "";
  const links = [...element.querySelectorAll("a")].reduce((text, link) => text.replace(link.textContent ?? "", ""), element.textContent ?? "");
  return links.replace(/^[\s/]+/, "").replace(/\s+/g, " ").trim();
}

function useArea(): { path: string; label: string } | null {
  const { pathname } = useLocation();
  const area = AREAS.find(({ path }) => pathname === path || pathname.startsWith(`${path}/`));
  return area === undefined ? null : { path: area.path, label: t(area.label) };
}

/** "Quality - Curate - Assay" on the browser's tab. */
export function TabTitle() {
  const { heading, part } = useShown();
  const area = useArea();
  useEffect(() => {
    const label = area?.label ?? "";
    const names = [heading === label ? "" : heading, part, label, "Assay"].filter((name) => name !== "");
    document.title = [...new Set(names)].join(" - ");
  }, [heading, part, area?.label]);
  return null;
}

/** Where this page is: the area as a link, and the page in it. Nothing where the area itself is shown. */
export function Breadcrumbs() {
  const { heading, part, placed } = useShown();
  const area = useArea();
  const here = heading !== area?.label && heading !== "" ? heading : part;
  if (area === null || here === "" || placed) return null;
  return (
    <nav aria-label={t("Breadcrumb")} className="breadcrumbs">
      <Anchor component={Link} to={area.path} size="sm" c="inherit">
        {area.label}
      </Anchor>
      <span aria-hidden>/</span>
      <Text size="sm" className="dim" truncate aria-current="page">
        <bdi>{here}</bdi>
      </Text>
    </nav>
  );
}
