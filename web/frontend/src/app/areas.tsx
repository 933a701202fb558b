import { IconChartLine, IconCoin, IconDatabase, IconFilter, IconHome, IconListCheck, IconThumbUp, IconUsers, type Icon } from "@tabler/icons-react";

import type { Permission } from "../api/session";
import { lazyPage, type LazyPage } from "../components/lazyPage";
import { textKey } from "../i18n";

/** One entry of the navigation. Its page is loaded when it is first opened, and takes every address below `path`. */
export interface Area {
  path: string;
  label: string;
  icon: Icon;
  needs: Permission;
  page: LazyPage;
}

/** Where people begin; not one of the areas, whose addresses it would take. */
export const HOME: Area = { path: "/", label: textKey("Home"), icon: IconHome, needs: "queues", page: lazyPage(() => import("../pages/home/HomePage")) };
export const FIRST_HOUR: Area = { ...HOME, path: "/first-hour", label: textKey("The first hour"), page: lazyPage(() => import("../pages/home/FirstHourPage")) };

export const AREAS: Area[] = [
  { path: "/annotate", label: textKey("Annotate"), icon: IconThumbUp, needs: "queues", page: lazyPage(() => import("../pages/annotate/AnnotatePage")) },
  { path: "/curate", label: textKey("Curate"), icon: IconFilter, needs: "records", page: lazyPage(() => import("../pages/curate/CuratePage")) },
  { path: "/data", label: textKey("Data"), icon: IconDatabase, needs: "records", page: lazyPage(() => import("../pages/data/DataPage")) },
  { path: "/rewards", label: textKey("Rewards"), icon: IconCoin, needs: "records", page: lazyPage(() => import("../pages/rewards/RewardsPage")) },
  { path: "/runs", label: textKey("Runs"), icon: IconChartLine, needs: "records", page: lazyPage(() => import("../pages/runs/RunsPage")) },
  { path: "/jobs", label: textKey("Jobs"), icon: IconListCheck, needs: "records", page: lazyPage(() => import("../pages/jobs/JobsPage")) },
  { path: "/access", label: textKey("Access"), icon: IconUsers, needs: "administer", page: lazyPage(() => import("../pages/access/AccessPage")) },
];
