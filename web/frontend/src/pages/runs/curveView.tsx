import { Button, Checkbox, CopyButton, Group, SegmentedControl, Text } from "@mantine/core";
import { useMemo, type ReactNode } from "react";
import { useSearchParams } from "react-router";

import type { ChartView } from "../../components/chartScale";
import { t } from "../../i18n";
import { X_AXES, type XAxis } from "./curves";

/** Points whose mean is drawn. */
const SMOOTHINGS = [1, 5, 20, 100];

export interface CurveView extends Required<ChartView> {
  smoothing: number;
  axis: XAxis;
}

export type ChangeView = (changes: Record<string, string | null>) => void;

/** How curves are looked at: all of it is in the address, so that a link shows the same. */
export function useCurveView(): { view: CurveView; change: ChangeView; onZoom: (zoom: [number, number] | null) => void; address: URLSearchParams } {
  const [address, setAddress] = useSearchParams();
  const text = address.get("zoom") ?? "";
  const smoothing = SMOOTHINGS.find((one) => String(one) === address.get("smoothing")) ?? 1;
  const axis = X_AXES.find((one) => one === address.get("x")) ?? "step";
  const logX = address.get("logx") === "1";
  const logY = address.get("logy") === "1";
  const view = useMemo<CurveView>(() => {
    const [from = NaN, to = NaN] = text.split("~").map(Number);
    return { smoothing, axis, logX, logY, zoom: to > from ? [from, to] : null };
  }, [smoothing, axis, logX, logY, text]);
  const change: ChangeView = (changes) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          if (value === null) after.delete(name);
          else after.set(name, value);
        }
        return after;
      },
    );
  return { view, change, onZoom: (zoom) => change({ zoom: zoom === null ? null : zoom.map((end) => Number(end.toPrecision(6))).join("~") }), address };
}

/** What the axis along is called. */
export function axisLabel(axis: XAxis): string {
  return { step: t("step"), tokens: t("tokens"), time: t("minutes") }[axis];
}

/** The choices above curves. */
export function CurveControls({ view, change, children }: { view: CurveView; change: ChangeView; children?: ReactNode }) {
  const axes = { step: t("steps"), tokens: t("tokens"), time: t("time") };
  return (
    <Group gap="6px 16px">
      <Group gap="xs">
        <Text size="sm" id="smoothing">
          {t("Smoothing")}
        </Text>
        <SegmentedControl
          aria-labelledby="smoothing"
          value={String(view.smoothing)}
          onChange={(value) => change({ smoothing: value === "1" ? null : value })}
          data={SMOOTHINGS.map((one) => ({ value: String(one), label: one === 1 ? t("none") : t("{{count}} points", { count: one }) }))}
        />
      </Group>
      <Group gap="xs">
        <Text size="sm" id="axis">
          {t("Over")}
        </Text>
        <SegmentedControl
          aria-labelledby="axis"
          value={view.axis}
          onChange={(value) => change({ x: value === "step" ? null : value, zoom: null })}
          data={X_AXES.map((one) => ({ value: one, label: axes[one] }))}
        />
      </Group>
      <Checkbox size="xs" label={t("log values")} checked={view.logY} onChange={(event) => change({ logy: event.currentTarget.checked ? "1" : null })} />
      <Checkbox size="xs" label={t("log axis along")} checked={view.logX} onChange={(event) => change({ logx: event.currentTarget.checked ? "1" : null })} />
      {children}
      {view.zoom !== null && (
        <Button variant="subtle" size="compact-sm" onClick={() => change({ zoom: null })}>
          {t("Show all of it")}
        </Button>
      )}
      <CopyLink />
    </Group>
  );
}

/** The address is all that somebody else needs to see the same. */
export function CopyLink() {
  useSearchParams(); // drawn again when the address changes
  return (
    <CopyButton value={window.location.href}>
      {({ copied, copy }) => (
        <Button variant="subtle" size="compact-sm" color="gray" onClick={copy}>
          {copied ? t("Link copied") : t("Copy the link")}
        </Button>
      )}
    </CopyButton>
  );
}
