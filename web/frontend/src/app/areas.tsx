import { IconChartLine, IconCoin, IconDatabase, IconFilter, IconThumbUp, IconUsers, type Icon } from "@tabler/icons-react";
import { lazy, type ComponentType } from "react";

import type { Role } from "../api/session";

/** One entry of the navigation. Its page is loaded when it is first opened, and takes every address below `path`. */
export interface Area {
  path: string;
  label: string;
  icon: Icon;
  needs: Role;
  page: ComponentType;
}

export const AREAS: Area[] = [
  { path: "/annotate", label: "Annotate", icon: IconThumbUp, needs: "viewer", page: lazy(() => import("../pages/annotate/AnnotatePage")) },
  { path: "/curate", label: "Curate", icon: IconFilter, needs: "viewer", page: lazy(() => import("../pages/curate/CuratePage")) },
  { path: "/data", label: "Data", icon: IconDatabase, needs: "viewer", page: lazy(() => import("../pages/data/DataPage")) },
  { path: "/rewards", label: "Rewards", icon: IconCoin, needs: "viewer", page: lazy(() => import("../pages/rewards/RewardsPage")) },
  { path: "/runs", label: "Runs", icon: IconChartLine, needs: "viewer", page: lazy(() => import("../pages/runs/RunsPage")) },
  { path: "/access", label: "Access", icon: IconUsers, needs: "admin", page: lazy(() => import("../pages/access/AccessPage")) },
];
