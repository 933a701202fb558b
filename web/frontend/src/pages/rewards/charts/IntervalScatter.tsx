import type { ReactNode } from "react";
import { CartesianGrid, ErrorBar, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis, type XAxisProps } from "recharts";

import { colourOf } from "./colours";
import { TOOLTIP } from "./tooltip";

/** One axis of numbers. `of`: the field of a point. `width`: of an upright one with its ticks. */
interface Axis {
  of: string;
  label: string;
  domain: XAxisProps["domain"];
  ticks?: number[];
  width?: number;
  format?: (value: number) => string;
}

const LABEL = { fontSize: 12, fill: "var(--assay-dim)" } as const;

/**
 * Points along a line, each with the interval of its height in `spread`: [below, above]. `told`: what the tooltip says
 * of a point under the pointer. `width`: of the line. `children`: what is drawn below the points.
 */
export function IntervalScatter<P extends { spread: number[] }>({
  points,
  x,
  y,
  series,
  width,
  told: label,
  children,
}: {
  points: P[];
  x: Axis;
  y: Axis;
  series: number;
  width: number;
  told: (point: unknown) => ReactNode;
  children?: ReactNode;
}) {
  const colour = colourOf(series);
  return (
    <ResponsiveContainer width="100%" height="100%">
      <ScatterChart margin={{ top: 8, right: 12, bottom: 18, left: 4 }} accessibilityLayer={false}>
        <CartesianGrid />
        <XAxis
          type="number"
          dataKey={x.of}
          domain={x.domain}
          ticks={x.ticks}
          tickFormatter={x.format}
          label={{ value: x.label, position: "insideBottom", offset: -10, ...LABEL }}
        />
        <YAxis
          type="number"
          dataKey={y.of}
          domain={y.domain}
          ticks={y.ticks}
          tickFormatter={y.format}
          width={y.width ?? 56}
          label={{ value: y.label, angle: -90, position: "insideLeft", offset: 6, ...LABEL, style: { textAnchor: "middle" } }}
        />
        <Tooltip
          {...TOOLTIP}
          content={({ payload }) => {
            const at: unknown = payload?.[0]?.payload;
            if (at === undefined) return null;
            return (
              <div className="panel" style={{ fontSize: 12 }}>
                {label(at)}
              </div>
            );
          }}
        />
        {children}
        <Scatter data={points} fill={colour} line={{ stroke: colour, strokeWidth: width }} isAnimationActive={false}>
          <ErrorBar dataKey="spread" direction="y" width={6} strokeWidth={1.5} stroke={colour} isAnimationActive={false} />
        </Scatter>
      </ScatterChart>
    </ResponsiveContainer>
  );
}
