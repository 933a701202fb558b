import "./AreaTabs.css";

import { Tabs } from "@mantine/core";
import { useEffect, useRef, type ReactNode } from "react";
import { useLocation, useNavigate } from "react-router";

import { t } from "../i18n";

/** The parts of an area, labels marked with `textKey`, below `path`, one shown at a time, each at its own address. `children`: the area's routes. */
export function AreaTabs({
  path,
  label,
  parts,
  children,
}: {
  path: string;
  label: string;
  parts: { value: string; label: string }[];
  children: ReactNode;
}) {
  const navigate = useNavigate();
  const part = useLocation().pathname.split("/")[2] ?? "";
  const exists = parts.some(({ value }) => value === part);
  const strip = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a narrow screen the strip scrolls: the part that is shown is in sight.
    const chosen = strip.current?.querySelector<HTMLElement>("[role=tab][aria-selected=true]");
    if (strip.current && chosen) strip.current.scrollLeft = chosen.offsetLeft - (strip.current.clientWidth - chosen.offsetWidth) / 2;
  }, [part]);
  return (
    <>
      <Tabs value={exists ? part : null} onChange={(value) => value !== null && void navigate(`${path}/${value}`)} keepMounted={false}>
        <div className="area-tabs" ref={strip}>
          <Tabs.List aria-label={label}>
            {parts.map(({ value, label: name }) => (
              <Tabs.Tab key={value} value={value}>
                {t(name)}
              </Tabs.Tab>
            ))}
          </Tabs.List>
        </div>
        {parts.map(({ value }) => (
          <Tabs.Panel key={value} value={value} pt="sm">
            {value === part && children}
          </Tabs.Panel>
        ))}
      </Tabs>
      {!exists && children}
    </>
  );
}
